"""The names of all built-in tools, whether they are offered or not: rules and grants mean these by them."""

BUILT_IN = frozenset(
    """
    agents_list apply_patch bash browser calculator canvas codesearch echo edit edit_block find git_branch
    git_commit git_diff git_log git_status glob grep image job_list job_poll job_start job_stop job_tail
    json-transform list list_dir more nodes ollama_local openrouter question random read read_file search_code
    session_status sessions_history sessions_list sessions_send sessions_spawn skill stat task timer todoread
    todowrite venice webfetch websearch write write_file
    """.split()
)

PERMISSIONS = frozenset({"file_read", "file_write", "git", "network", "session", "shell"})
"""What built-in tools need."""
