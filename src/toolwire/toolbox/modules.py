"""The modules from which `registry` makes tools, each loaded when the first tool of it is wanted.

Most commands need few tools, and loading all of them would take longer than most calls.
"""

from typing import TYPE_CHECKING

from toolwire.lazy import lazy_module

if TYPE_CHECKING:
    from toolwire.execute import quota, toolchains
    from toolwire.execute.egress import web as egress_web
    from toolwire.execute.sandbox import engines
    from toolwire.record import memory
    from toolwire.toolbox import (
        asking,
        browser,
        browser_chromium,
        canvas,
        data,
        delegation,
        errands,
        everyday,
        files,
        finding,
        git,
        git_commit,
        job_tools,
        jobs,
        local_files,
        paging,
        patching,
        pictures,
        question,
        search,
        searching,
        shell,
        todos,
        web,
        writing,
    )
else:
    quota = lazy_module("toolwire.execute.quota")
    toolchains = lazy_module("toolwire.execute.toolchains")
    egress_web = lazy_module("toolwire.execute.egress.web")
    engines = lazy_module("toolwire.execute.sandbox.engines")
    memory = lazy_module("toolwire.record.memory")
    asking = lazy_module("toolwire.toolbox.asking")
    browser = lazy_module("toolwire.toolbox.browser")
    browser_chromium = lazy_module("toolwire.toolbox.browser_chromium")
    canvas = lazy_module("toolwire.toolbox.canvas")
    data = lazy_module("toolwire.toolbox.data")
    delegation = lazy_module("toolwire.toolbox.delegation")
    errands = lazy_module("toolwire.toolbox.errands")
    everyday = lazy_module("toolwire.toolbox.everyday")
    files = lazy_module("toolwire.toolbox.files")
    finding = lazy_module("toolwire.toolbox.finding")
    git = lazy_module("toolwire.toolbox.git")
    git_commit = lazy_module("toolwire.toolbox.git_commit")
    job_tools = lazy_module("toolwire.toolbox.job_tools")
    jobs = lazy_module("toolwire.toolbox.jobs")
    local_files = lazy_module("toolwire.toolbox.local_files")
    paging = lazy_module("toolwire.toolbox.paging")
    patching = lazy_module("toolwire.toolbox.patching")
    pictures = lazy_module("toolwire.toolbox.pictures")
    question = lazy_module("toolwire.toolbox.question")
    search = lazy_module("toolwire.toolbox.search")
    searching = lazy_module("toolwire.toolbox.searching")
    shell = lazy_module("toolwire.toolbox.shell")
    todos = lazy_module("toolwire.toolbox.todos")
    web = lazy_module("toolwire.toolbox.web")
    writing = lazy_module("toolwire.toolbox.writing")

__all__ = [
    "asking", "browser", "browser_chromium", "canvas", "data", "delegation", "egress_web", "engines", "errands",
    "everyday", "files", "finding", "git", "git_commit", "job_tools", "jobs", "local_files", "memory", "paging",
    "patching", "pictures", "question", "quota", "search", "searching", "shell", "todos", "toolchains", "web",
    "writing",
]  # fmt: skip
