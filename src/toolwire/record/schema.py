"""The tables of the SQLite store, as numbered steps from nothing to today."""

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolwire.errors import StoreUnavailable

APPLICATION_ID = 0x746F6F6C  # "tool": tells our file from another program's database

_TURN_COLUMNS = """
        project TEXT NOT NULL,
        agent TEXT NOT NULL,
        thread TEXT NOT NULL,
        model TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        owner TEXT,
        state TEXT NOT NULL CHECK (state IN ('running', 'interrupted', 'ended')),
        opening TEXT NOT NULL,
        history TEXT,
        history_upto INTEGER NOT NULL DEFAULT 0,
        ending TEXT,
        ended INTEGER,
        started_at REAL NOT NULL,
        updated_at REAL NOT NULL
"""
_RECORD_COLUMNS = """
        project TEXT NOT NULL,
        schema_name TEXT NOT NULL,
        title TEXT NOT NULL,
        context TEXT NOT NULL,
        tags TEXT NOT NULL DEFAULT '[]',
        version INTEGER NOT NULL DEFAULT 1,
        llm_hints TEXT,
        visibility TEXT NOT NULL DEFAULT 'project',
        sensitivity TEXT NOT NULL DEFAULT 'normal',
        expires_at REAL,
        created_by TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_by TEXT NOT NULL DEFAULT '',
        updated_at REAL,
        turn_id TEXT,
        call_id TEXT
"""
_BASE = (
    f"""
    CREATE TABLE turns (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        {_TURN_COLUMNS}
    ) STRICT
    """,
    "CREATE INDEX turns_by_thread ON turns (thread, ended)",
    "CREATE INDEX turns_running ON turns (owner) WHERE state = 'running'",
    f"""
    CREATE TABLE records (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        {_RECORD_COLUMNS}
    ) STRICT
    """,
    "CREATE UNIQUE INDEX records_by_call ON records (turn_id, call_id, schema_name)",
    "CREATE INDEX records_by_kind ON records (schema_name, title)",
    """
    CREATE TABLE starts (
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        starts INTEGER NOT NULL,
        PRIMARY KEY (turn_id, call_id)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE audit (
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        event TEXT NOT NULL,
        project TEXT NOT NULL,
        agent TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        rule TEXT NOT NULL,
        status TEXT NOT NULL,
        code TEXT NOT NULL,
        args_digest TEXT NOT NULL,
        elapsed_ms REAL,
        detail TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX audit_by_turn ON audit (turn_id)",
    """
    CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
    BEGIN SELECT raise(ABORT, 'the audit log is never changed'); END
    """,
    """
    CREATE TRIGGER audit_is_never_cut BEFORE DELETE ON audit
    BEGIN SELECT raise(ABORT, 'the audit log is never cut'); END
    """,
)

_METRICS = (
    """
    CREATE TABLE tool_metrics (
        tool TEXT PRIMARY KEY,
        calls INTEGER NOT NULL,
        success INTEGER NOT NULL,
        errors INTEGER NOT NULL,
        timeouts INTEGER NOT NULL,
        canceled INTEGER NOT NULL,
        total_ms REAL NOT NULL,
        max_ms REAL NOT NULL,
        last_error TEXT NOT NULL DEFAULT '',
        last_error_at REAL
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE loop_metrics (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        turns INTEGER NOT NULL,
        answered INTEGER NOT NULL,
        iterations INTEGER NOT NULL,
        total_ms REAL NOT NULL,
        batches INTEGER NOT NULL,
        max_concurrency INTEGER NOT NULL,
        saved_ms REAL NOT NULL,
        with_failures INTEGER NOT NULL,
        recovered INTEGER NOT NULL,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cost_usd REAL
    ) STRICT
    """,
    # Results kept before there were metrics are counted once, here.
    """
    INSERT INTO tool_metrics (tool, calls, success, errors, timeouts, canceled, total_ms, max_ms)
    SELECT title, count(*), sum(status = 'success'), sum(status = 'failed'), sum(status = 'timeout'),
           sum(status = 'canceled'), total(elapsed_ms), max(coalesce(elapsed_ms, 0.0))
    FROM (SELECT title, json_extract(context, '$.status') AS status,
                 CAST(json_extract(context, '$.elapsed_ms') AS REAL) AS elapsed_ms
          FROM records WHERE schema_name = 'tool.result')
    GROUP BY title
    """,
)

# One statement, so that all three are seen at the same moment: another process may be making the tables just now.
_IDENTITY = """
    SELECT (SELECT user_version FROM pragma_user_version), (SELECT application_id FROM pragma_application_id),
           (SELECT count(*) FROM sqlite_master)
"""
SERVER_IDENTITY = f"""
    SELECT (SELECT user_version FROM pragma_user_version),
           CASE WHEN EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'turns') THEN {APPLICATION_ID} ELSE 0 END,
           (SELECT count(*) FROM sqlite_master)
"""  # noqa: S608 -- our own number; a server keeps no application id, so our tables must do

_FORMATS = (
    """
    CREATE TABLE format_tallies (
        model TEXT NOT NULL,
        offered TEXT NOT NULL,
        tally TEXT NOT NULL,
        PRIMARY KEY (model, offered)
    ) STRICT, WITHOUT ROWID
    """,
)

# Calls are looked for by their tool, other records are not: an index of all kinds costs every write a page more.
_FEWER_PAGES = (
    "DROP INDEX records_by_kind",
    "CREATE INDEX calls_by_tool ON records (title) WHERE schema_name = 'tool.call'",
)

_APPROVALS = (
    """
    CREATE TABLE approvals (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        body TEXT NOT NULL,
        expires_at REAL NOT NULL,
        decided INTEGER NOT NULL DEFAULT 0,
        UNIQUE (turn_id, call_id)
    ) STRICT
    """,
    "CREATE INDEX approvals_open ON approvals (expires_at) WHERE decided = 0",
)

_CHAIN = ("ALTER TABLE audit ADD COLUMN chain TEXT NOT NULL DEFAULT ''",)

_SPENDING = (
    """
    CREATE TABLE spending (
        agent TEXT NOT NULL,
        day INTEGER NOT NULL,
        calls INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        cost_usd REAL NOT NULL,
        PRIMARY KEY (agent, day)
    ) STRICT, WITHOUT ROWID
    """,
)

_STANDING = (
    "ALTER TABLE approvals ADD COLUMN stands_until REAL NOT NULL DEFAULT 0",
    "CREATE INDEX approvals_standing ON approvals (stands_until) WHERE stands_until > 0",
)

_PURSES = (
    """
    CREATE TABLE purses (
        root TEXT NOT NULL PRIMARY KEY,
        calls INTEGER NOT NULL,
        tokens INTEGER,
        agents INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)

# What a turn has used so far, so that the day's sum knows of it before it ends. It ran for `before_s` before it was
# resumed, `since` then for the rest of `ran_s`. A purse told what is left; what was lent is taken from any limit.
_SO_FAR = (
    "ALTER TABLE turns ADD COLUMN calls INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE turns ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE turns ADD COLUMN cost_usd REAL NOT NULL DEFAULT 0",
    "ALTER TABLE turns ADD COLUMN own_time INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE turns ADD COLUMN since REAL NOT NULL DEFAULT 0",
    "ALTER TABLE turns ADD COLUMN before_s REAL NOT NULL DEFAULT 0",
    "ALTER TABLE turns ADD COLUMN ran_s REAL NOT NULL DEFAULT 0",
    "UPDATE turns SET since = updated_at",
    "CREATE INDEX turns_interrupted ON turns (agent, updated_at) WHERE state = 'interrupted'",
    "ALTER TABLE spending ADD COLUMN wall_s REAL NOT NULL DEFAULT 0",
    "DROP TABLE purses",
    """
    CREATE TABLE lent (
        root TEXT NOT NULL PRIMARY KEY,
        calls INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        cost_usd REAL NOT NULL,
        agents INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)

# What turns wrote after they had read untrusted content, so that those who read it later know.
_UNTRUSTED = (
    """
    CREATE TABLE untrusted (
        project TEXT NOT NULL,
        resource TEXT NOT NULL,
        inode TEXT NOT NULL,
        version TEXT NOT NULL,
        origins TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (project, resource)
    ) STRICT, WITHOUT ROWID
    """,
)

# Sums are kept for each project. What was counted before, over all of them, stays with the default one.
_PROJECTS = (
    "ALTER TABLE tool_metrics RENAME TO old_tool_metrics",
    """
    CREATE TABLE tool_metrics (
        project TEXT NOT NULL,
        tool TEXT NOT NULL,
        calls INTEGER NOT NULL,
        success INTEGER NOT NULL,
        errors INTEGER NOT NULL,
        timeouts INTEGER NOT NULL,
        canceled INTEGER NOT NULL,
        total_ms REAL NOT NULL,
        max_ms REAL NOT NULL,
        last_error TEXT NOT NULL DEFAULT '',
        last_error_at REAL,
        PRIMARY KEY (project, tool)
    ) STRICT, WITHOUT ROWID
    """,
    "INSERT INTO tool_metrics SELECT 'default', * FROM old_tool_metrics",
    "DROP TABLE old_tool_metrics",
    "ALTER TABLE loop_metrics RENAME TO old_loop_metrics",
    """
    CREATE TABLE loop_metrics (
        project TEXT NOT NULL PRIMARY KEY,
        turns INTEGER NOT NULL,
        answered INTEGER NOT NULL,
        iterations INTEGER NOT NULL,
        total_ms REAL NOT NULL,
        batches INTEGER NOT NULL,
        max_concurrency INTEGER NOT NULL,
        saved_ms REAL NOT NULL,
        with_failures INTEGER NOT NULL,
        recovered INTEGER NOT NULL,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cost_usd REAL
    ) STRICT, WITHOUT ROWID
    """,
    """
    INSERT INTO loop_metrics
    SELECT 'default', turns, answered, iterations, total_ms, batches, max_concurrency, saved_ms, with_failures,
           recovered, input_tokens, output_tokens, cost_usd
    FROM old_loop_metrics
    """,
    "DROP TABLE old_loop_metrics",
    "ALTER TABLE spending RENAME TO old_spending",
    """
    CREATE TABLE spending (
        project TEXT NOT NULL,
        agent TEXT NOT NULL,
        day INTEGER NOT NULL,
        calls INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        cost_usd REAL NOT NULL,
        wall_s REAL NOT NULL DEFAULT 0,
        PRIMARY KEY (project, agent, day)
    ) STRICT, WITHOUT ROWID
    """,
    "INSERT INTO spending SELECT 'default', agent, day, calls, tokens, cost_usd, wall_s FROM old_spending",
    "DROP TABLE old_spending",
)

# A rare tool is found without reading the whole log.
_AUDIT_OF_TOOLS = ("CREATE INDEX audit_by_tool ON audit (tool)",)

# The log may be cut at its beginning, once the digest of the last row that goes is kept.
_RETENTION = (
    """
    CREATE TABLE audit_cuts (
        seq INTEGER PRIMARY KEY,
        head TEXT NOT NULL,
        at REAL NOT NULL,
        signature TEXT NOT NULL
    ) STRICT
    """,
    "DROP TRIGGER audit_is_never_cut",
    """
    CREATE TRIGGER audit_is_never_cut BEFORE DELETE ON audit
    WHEN old.seq > coalesce((SELECT max(seq) FROM audit_cuts), 0)
    BEGIN SELECT raise(ABORT, 'the audit log is never cut'); END
    """,
)

# What single calls cost a turn that has not ended, beside what its replies do: the row of a turn is long, and would be
# written again for each call.
_CHARGES = ("CREATE TABLE charges (turn_id TEXT NOT NULL PRIMARY KEY, calls INTEGER NOT NULL) STRICT, WITHOUT ROWID",)

# What a turn waits for that no process runs: found with the interrupted ones.
_WAITS = ("ALTER TABLE turns ADD COLUMN waits TEXT NOT NULL DEFAULT ''",)

# Who holds a call: its newest claim, beside how often it was claimed. A claim that came with its card, of the process
# that runs the turn, needs no row: the turn says who that is.
_LEASES = (
    "ALTER TABLE starts ADD COLUMN owner TEXT",
    "ALTER TABLE starts ADD COLUMN until REAL",
    "ALTER TABLE starts ADD COLUMN epoch INTEGER",
    "ALTER TABLE starts ADD COLUMN token TEXT",
)

# What sub-agents have been lent belongs to a project, as the question does that they work on.
_LENT_BY_PROJECT = (
    """
    UPDATE lent SET root = (SELECT char(30) || project || char(30) || id FROM turns WHERE id = lent.root)
    WHERE root IN (SELECT id FROM turns WHERE project <> 'default')
    """,
    "DROP INDEX turns_by_thread",
    "CREATE INDEX turns_by_thread ON turns (project, thread, ended)",
    "DROP INDEX turns_interrupted",
    "CREATE INDEX turns_interrupted ON turns (project, agent, updated_at) WHERE state = 'interrupted'",
)

# A number that a follower has seen is never given again, though all rows up to it may have been pruned.
_CURSORS = ("CREATE TABLE cursor_floors (kind TEXT NOT NULL PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID",)

# Machines that share a database each have a chain and a count of their own. Rows that have no name here are those of a
# database with one writer, which counts by `seq`.
_WRITERS = (
    """
    CREATE TABLE audit_writers (
        seq INTEGER PRIMARY KEY,
        writer TEXT NOT NULL,
        number INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX audit_writers_newest ON audit_writers (writer, seq)",
)

# Owners that share a database from several machines: until when each is alive, by the database's own clock.
_OWNER_LEASES = (
    """
    CREATE TABLE owner_leases (
        owner TEXT NOT NULL PRIMARY KEY,
        until REAL NOT NULL,
        generation INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)

# What model calls have reserved of the day until their reply is on record.
_RESERVED_USAGE = (
    """
    CREATE TABLE reserved_usage (
        project TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        agent TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        owner TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        cost_usd REAL NOT NULL,
        PRIMARY KEY (project, turn_id)
    ) STRICT, WITHOUT ROWID
    """,
)

# Calls that want a lock which holds over all processes, in the order in which they came; see `lock_queue`.
_LOCK_QUEUE = (
    """
    CREATE TABLE lock_queue (
        project TEXT NOT NULL,
        resource TEXT NOT NULL,
        number INTEGER NOT NULL,
        token TEXT NOT NULL,
        owner TEXT NOT NULL,
        writes INTEGER NOT NULL,
        most INTEGER,
        PRIMARY KEY (project, resource, number)
    ) STRICT, WITHOUT ROWID
    """,
)

# Ids come from outside, so each project has its own: one can neither learn of another's ids nor be blocked by them.
# An index of ids begins with the id: those rise with time, so new rows come at its end however many projects there are.
# The project is next, so that a lookup reads no row of another.
_TURN_KEYS = (
    "DROP INDEX turns_by_thread",
    "DROP INDEX turns_running",
    "DROP INDEX turns_interrupted",
    "ALTER TABLE turns RENAME TO old_turns",
    f"""
    CREATE TABLE turns (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        {_TURN_COLUMNS},
        calls INTEGER NOT NULL DEFAULT 0,
        tokens INTEGER NOT NULL DEFAULT 0,
        cost_usd REAL NOT NULL DEFAULT 0,
        own_time INTEGER NOT NULL DEFAULT 1,
        since REAL NOT NULL DEFAULT 0,
        before_s REAL NOT NULL DEFAULT 0,
        ran_s REAL NOT NULL DEFAULT 0,
        waits TEXT NOT NULL DEFAULT '',
        UNIQUE (id, project)
    ) STRICT
    """,
    """
    INSERT INTO turns
    SELECT seq, id, project, agent, thread, model, epoch, owner, state, opening, history, history_upto, ending, ended,
           started_at, updated_at, calls, tokens, cost_usd, own_time, since, before_s, ran_s, waits
    FROM old_turns
    """,
    "DROP TABLE old_turns",
    "CREATE INDEX turns_by_project ON turns (project)",
    "CREATE INDEX turns_by_thread ON turns (project, thread, ended)",
    "CREATE INDEX turns_running ON turns (project, owner) WHERE state = 'running'",
    "CREATE INDEX turns_interrupted ON turns (project, agent, updated_at) WHERE state = 'interrupted'",
)
# No question asks for a record by its id: it is found by its call. An index of them would cost every commit two pages.
_RECORD_KEYS = (
    "DROP INDEX records_by_call",
    "DROP INDEX calls_by_tool",
    "ALTER TABLE records RENAME TO old_records",
    f"""
    CREATE TABLE records (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        {_RECORD_COLUMNS}
    ) STRICT
    """,
    """
    INSERT INTO records
    SELECT seq, id, project, schema_name, title, context, tags, version, llm_hints, visibility, sensitivity, expires_at,
           created_by, created_at, updated_by, updated_at, turn_id, call_id
    FROM old_records
    """,
    "DROP TABLE old_records",
    "CREATE UNIQUE INDEX records_by_call ON records (turn_id, project, call_id, schema_name)",
    "CREATE INDEX calls_by_project ON records (project) WHERE schema_name = 'tool.call'",
    "CREATE INDEX calls_by_tool ON records (project, title) WHERE schema_name = 'tool.call'",
    "ALTER TABLE starts RENAME TO old_starts",
    """
    CREATE TABLE starts (
        project TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        starts INTEGER NOT NULL,
        owner TEXT,
        until REAL,
        epoch INTEGER,
        token TEXT,
        PRIMARY KEY (turn_id, project, call_id)
    ) STRICT, WITHOUT ROWID
    """,
    """
    INSERT INTO starts
    SELECT r.project, s.turn_id, s.call_id, s.starts, s.owner, s.until, s.epoch, s.token
    FROM old_starts s
    JOIN records r ON r.turn_id = s.turn_id AND r.call_id = s.call_id AND r.schema_name = 'tool.call'
    """,
    "DROP TABLE old_starts",
)
_APPROVAL_KEYS = (
    "DROP INDEX approvals_open",
    "DROP INDEX approvals_standing",
    "ALTER TABLE approvals RENAME TO old_approvals",
    """
    CREATE TABLE approvals (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        project TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        body TEXT NOT NULL,
        expires_at REAL NOT NULL,
        decided INTEGER NOT NULL DEFAULT 0,
        stands_until REAL NOT NULL DEFAULT 0,
        UNIQUE (id, project),
        UNIQUE (turn_id, project, call_id)
    ) STRICT
    """,
    """
    INSERT INTO approvals
    SELECT seq, id, coalesce(json_extract(body, '$.project'), 'default'), turn_id, call_id, body, expires_at, decided,
           stands_until
    FROM old_approvals
    """,
    "DROP TABLE old_approvals",
    "CREATE INDEX approvals_by_project ON approvals (project)",
    "CREATE INDEX approvals_open ON approvals (project, expires_at) WHERE decided = 0",
    "CREATE INDEX approvals_open_anywhere ON approvals (expires_at) WHERE decided = 0",
    "CREATE INDEX approvals_standing ON approvals (project, stands_until) WHERE stands_until > 0",
)
# In a key of before, a project stood in front of the name, between two signs; that of the default project did not.
_OLD_KEY = """
    iif({key} GLOB char(30) || '*', substr({key}, 2, instr(substr({key}, 2), char(30)) - 1), 'default'),
    iif({key} GLOB char(30) || '*', substr({key}, 2 + instr(substr({key}, 2), char(30))), {key})
"""
_SUM_KEYS = (
    "ALTER TABLE charges RENAME TO old_charges",
    """
    CREATE TABLE charges (
        project TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        calls INTEGER NOT NULL,
        PRIMARY KEY (turn_id, project)
    ) STRICT, WITHOUT ROWID
    """,
    """
    INSERT INTO charges SELECT t.project, c.turn_id, c.calls FROM old_charges c JOIN turns t ON t.id = c.turn_id
    """,
    "DROP TABLE old_charges",
    "ALTER TABLE lent RENAME TO old_lent",
    """
    CREATE TABLE lent (
        project TEXT NOT NULL,
        root TEXT NOT NULL,
        calls INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        cost_usd REAL NOT NULL,
        agents INTEGER NOT NULL,
        PRIMARY KEY (root, project)
    ) STRICT, WITHOUT ROWID
    """,
    f"INSERT INTO lent SELECT {_OLD_KEY.format(key='root')}, calls, tokens, cost_usd, agents FROM old_lent",  # noqa: S608
    "DROP TABLE old_lent",
    "ALTER TABLE format_tallies RENAME TO old_format_tallies",
    """
    CREATE TABLE format_tallies (
        project TEXT NOT NULL,
        model TEXT NOT NULL,
        offered TEXT NOT NULL,
        tally TEXT NOT NULL,
        PRIMARY KEY (project, model, offered)
    ) STRICT, WITHOUT ROWID
    """,
    f"INSERT INTO format_tallies SELECT {_OLD_KEY.format(key='model')}, offered, tally FROM old_format_tallies",  # noqa: S608
    "DROP TABLE old_format_tallies",
)
# From here on each project has audit chains of its own; the rows so far are in chains that all projects share.
_AUDIT_KEYS = (
    "DROP INDEX audit_by_turn",
    "DROP INDEX audit_by_tool",
    "CREATE INDEX audit_by_turn ON audit (turn_id, project)",
    "CREATE INDEX audit_by_tool ON audit (tool, project)",
    "CREATE INDEX audit_by_project ON audit (project)",
    "CREATE TABLE audit_shared (upto INTEGER NOT NULL PRIMARY KEY) STRICT",
    "INSERT INTO audit_shared SELECT coalesce(max(seq), 0) FROM audit",
    "ALTER TABLE audit_writers ADD COLUMN project TEXT NOT NULL DEFAULT ''",
    "DROP INDEX audit_writers_newest",
    "CREATE INDEX audit_writers_newest ON audit_writers (writer, project, seq)",
    # A process of an earlier version that still runs would go on with the shared chain: under this name it cannot.
    "ALTER TABLE audit RENAME COLUMN chain TO digest",
)

# Large bodies, for a store that several machines share: the pieces of an upload, and which uploads are whole.
_BODIES = (
    """
    CREATE TABLE body_parts (
        seq INTEGER PRIMARY KEY,
        upload TEXT NOT NULL,
        part INTEGER NOT NULL,
        data BLOB NOT NULL,
        at REAL NOT NULL,
        UNIQUE (upload, part)
    ) STRICT
    """,
    "CREATE INDEX body_parts_begun ON body_parts (at) WHERE part = 0",
    """
    CREATE TABLE bodies (
        digest TEXT NOT NULL PRIMARY KEY,
        upload TEXT NOT NULL UNIQUE,
        size INTEGER NOT NULL,
        at REAL NOT NULL
    ) STRICT
    """,
)

# Events of turns, for those who watch one and come back after a restart.
_EVENTS = (
    """
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        project TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        number INTEGER NOT NULL,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL,
        size INTEGER NOT NULL,
        UNIQUE (turn_id, project, epoch, number)
    ) STRICT
    """,
    "CREATE INDEX events_by_project ON events (project)",
    "CREATE INDEX events_by_age ON events (at)",
)

# Tools that projects have registered, and the cards of results that services write. Names of tools and versions are
# short. Ids of cards come from services: an index of them begins with the project, which one service belongs to.
_REGISTRY = (
    """
    CREATE TABLE registered_tools (
        project TEXT NOT NULL,
        tool_name TEXT NOT NULL,
        version TEXT NOT NULL,
        description TEXT NOT NULL,
        parameters TEXT NOT NULL,
        target_subject TEXT NOT NULL,
        after_execution TEXT NOT NULL,
        options TEXT NOT NULL,
        digest TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        PRIMARY KEY (project, tool_name, version)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE result_cards (
        seq INTEGER PRIMARY KEY,
        project TEXT NOT NULL,
        card_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        digest TEXT NOT NULL,
        body BLOB NOT NULL,
        author TEXT NOT NULL,
        created_at REAL NOT NULL,
        UNIQUE (project, card_id)
    ) STRICT
    """,
    "CREATE INDEX result_cards_by_call ON result_cards (turn_id, project, call_id)",
)

# Calls on their way to other processes, and when each is sent again.
_DISPATCHES = (
    """
    CREATE TABLE dispatches (
        project TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        card_id TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        subject TEXT NOT NULL,
        message TEXT NOT NULL,
        due REAL NOT NULL,
        expires_at REAL NOT NULL,
        repeatable INTEGER NOT NULL,
        sent INTEGER NOT NULL,
        PRIMARY KEY (turn_id, project, call_id)
    ) STRICT
    """,
    "CREATE INDEX dispatches_due ON dispatches (due)",
    "CREATE INDEX dispatches_by_card ON dispatches (card_id, project)",
    "CREATE INDEX dispatches_due_by_project ON dispatches (project, due)",
)

# What became of a call beside its result: whether its turn waits for it (1: not, 2: not, and it has ended), and why its
# holder is asked to stop.
_CALL_MARKS = (
    "ALTER TABLE starts ADD COLUMN detached INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE starts ADD COLUMN cancel TEXT",
    "CREATE INDEX starts_detached ON starts (project, turn_id) WHERE detached = 1",
)

# Records that agents and people share: the current versions, the earlier ones, what happened to them, and the keys for
# which they were created. A number is a date in microseconds. The body is the last column, so that others are read
# without it.
_SHARED_RECORDS = (
    """
    CREATE TABLE shared_records (
        number INTEGER PRIMARY KEY,
        project TEXT NOT NULL,
        record_id TEXT NOT NULL,
        schema_name TEXT NOT NULL,
        version INTEGER NOT NULL,
        visibility TEXT NOT NULL,
        sensitivity TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at REAL NOT NULL,
        ends_at REAL,
        uses_left INTEGER,
        changed INTEGER NOT NULL,
        key_digest TEXT,
        body TEXT NOT NULL,
        UNIQUE (record_id, project)
    ) STRICT
    """,
    "CREATE INDEX shared_records_by_project ON shared_records (project, number)",
    "CREATE INDEX shared_records_by_schema ON shared_records (project, schema_name, number)",
    "CREATE INDEX shared_records_by_author ON shared_records (project, created_by, number)",
    "CREATE INDEX shared_records_ending ON shared_records (project, ends_at) WHERE ends_at IS NOT NULL",
    """
    CREATE TABLE record_tags (
        project TEXT NOT NULL,
        tag TEXT NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (project, tag, number)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE record_versions (
        changed INTEGER PRIMARY KEY,
        project TEXT NOT NULL,
        record_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (record_id, project, version)
    ) STRICT
    """,
    """
    CREATE TABLE record_changes (
        seq INTEGER PRIMARY KEY,
        project TEXT NOT NULL,
        record_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        kind TEXT NOT NULL,
        at REAL NOT NULL,
        body TEXT
    ) STRICT
    """,
    "CREATE INDEX record_changes_by_project ON record_changes (project, seq)",
    """
    CREATE TABLE record_keys (
        project TEXT NOT NULL,
        key_digest TEXT NOT NULL,
        record_id TEXT NOT NULL,
        digest TEXT NOT NULL,
        gone_at REAL,
        PRIMARY KEY (project, key_digest)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX record_keys_gone ON record_keys (gone_at) WHERE gone_at IS NOT NULL",
)

# What is found by words and by vectors: see record_index.py. The index has no copy of the lines that it is about.
_RECORD_INDEX = (
    "CREATE TABLE record_words (number INTEGER PRIMARY KEY, words TEXT NOT NULL) STRICT",
    """
    CREATE VIRTUAL TABLE record_words_index USING fts5 (
        words, content = 'record_words', content_rowid = 'number', detail = none, columnsize = 0, tokenize = 'ascii'
    )
    """,
    """
    CREATE TRIGGER record_words_added AFTER INSERT ON record_words BEGIN
        INSERT INTO record_words_index (rowid, words) VALUES (new.number, new.words);
    END
    """,
    """
    CREATE TRIGGER record_words_dropped AFTER DELETE ON record_words BEGIN
        INSERT INTO record_words_index (record_words_index, rowid, words) VALUES ('delete', old.number, old.words);
    END
    """,
    """
    CREATE TRIGGER record_words_changed AFTER UPDATE ON record_words BEGIN
        INSERT INTO record_words_index (record_words_index, rowid, words) VALUES ('delete', old.number, old.words);
        INSERT INTO record_words_index (rowid, words) VALUES (new.number, new.words);
    END
    """,
    """
    CREATE TABLE record_vectors (
        number INTEGER PRIMARY KEY,
        project TEXT NOT NULL,
        changed INTEGER NOT NULL,
        state INTEGER NOT NULL,
        gone_at REAL,
        model TEXT NOT NULL DEFAULT '',
        bits BLOB,
        vector BLOB
    ) STRICT
    """,
    "CREATE INDEX record_vectors_by_change ON record_vectors (project, changed)",
    "CREATE INDEX record_vectors_gone ON record_vectors (gone_at) WHERE gone_at IS NOT NULL",
)
INDEX_OF_WORDS = "record_words_index"
"""A virtual table. SQLite makes tables of its own for it, which have its name and more; none of them is copied."""

STEPS: Sequence[Sequence[str]] = (
    _BASE, _METRICS, _FORMATS, _FEWER_PAGES, _APPROVALS, _CHAIN, _SPENDING, _STANDING, _PURSES, _SO_FAR, _UNTRUSTED,
    _PROJECTS, _AUDIT_OF_TOOLS, _RETENTION, _CHARGES, _WAITS, _LEASES, _LENT_BY_PROJECT, _CURSORS, _WRITERS,
    _OWNER_LEASES, _RESERVED_USAGE, _LOCK_QUEUE, _TURN_KEYS, _RECORD_KEYS, _APPROVAL_KEYS, _SUM_KEYS, _AUDIT_KEYS,
    _BODIES, _EVENTS, _REGISTRY, _DISPATCHES, _CALL_MARKS, _SHARED_RECORDS, _RECORD_INDEX,
)  # fmt: skip

_PRIMARY = 0xFF
"""Where the primary code of an error stands; the rest says more about it."""
_PAUSE_S = 0.005
_BODY_PARTS_COPIED = 16  # each may have half a megabyte


def connect(path: Path, *, busy_timeout_s: float) -> sqlite3.Connection:
    """Open the database file with the settings that durability rests on. A file that is not ours stays as it is."""
    connection = sqlite3.connect(
        path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False, cached_statements=64
    )
    try:
        _version(connection, path, len(STEPS))
        _turn_on_log(connection, busy_timeout_s)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        # The same few pages change with every call: copied to the file rarely, they are copied once for many calls. But
        # what is written over is durable sooner than what makes the log grow, so it does not grow far.
        connection.execute("PRAGMA wal_autocheckpoint = 2000")
    except BaseException:
        connection.close()
        raise
    return connection


def _turn_on_log(connection: sqlite3.Connection, patience_s: float) -> None:
    """SQLite does not wait here for a writer as it does elsewhere, but others may be making the same new store."""
    until = time.monotonic() + patience_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def migrate(
    connection: sqlite3.Connection,
    path: Path | str,
    steps: Sequence[Sequence[str]] = STEPS,
    *,
    identity: str = _IDENTITY,
) -> None:
    """Bring the tables up to date, one transaction a step. Raises StoreUnavailable for a file we must not touch.

    A new store gets all of them in one transaction: it holds nothing that would make a step long.
    """
    while _version(connection, path, len(steps), identity) < len(steps):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have taken this step while we waited for the lock.
            done = _version(connection, path, len(steps), identity)
            if done < len(steps):
                upto = done + 1 if done else len(steps)
                # A new store needs no tables of yesterday: a third of the statements, an eighth of the time.
                is_new = not done and steps is STEPS
                _take(connection, newest() if is_new else _statements(steps[done:upto]), upto)
            connection.execute("COMMIT")
        except BaseException:
            # SQLite rolls back by itself where there is no room, and what went wrong must not be hidden by that.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise


def _statements(steps: Sequence[Sequence[str]]) -> list[str]:
    return [statement for step in steps for statement in step]


def _take(connection: sqlite3.Connection, statements: Sequence[str], version: int) -> None:
    for statement in statements:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
    connection.execute(f"PRAGMA user_version = {version:d}")


def _version(connection: sqlite3.Connection, path: Path | str, newest: int, identity: str = _IDENTITY) -> int:
    version, application, tables = connection.execute(identity).fetchone()
    if tables and application != APPLICATION_ID:
        raise StoreUnavailable(f"{path} is another program's database; move it away, or choose another home")
    if version > newest:
        raise too_new(path, version, newest)
    return int(version)


def too_new(path: Path | str, version: int, known: int | None = None) -> StoreUnavailable:
    """What is said of a store that a later version made."""
    return StoreUnavailable(
        f"{path} was made by a newer toolwire (store version {version}, known here: {known or len(STEPS)}); "
        "upgrade toolwire, or choose another home"
    )


class CopiedTable(NamedTuple):
    """A table of a store, with the statements that empty it, read its rows in order, page by page, and write them."""

    name: str
    clear: str
    read: str
    write: str


def tables(connection: sqlite3.Connection, page: int) -> Iterator[CopiedTable]:
    """The tables of a new, empty store. Their names are those in this file, never what a store elsewhere says."""
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY name"
    ).fetchall()
    for (name,) in names:
        if name.startswith(INDEX_OF_WORDS):
            continue
        columns = connection.execute("SELECT name, pk FROM pragma_table_info(?) ORDER BY pk", (name,)).fetchall()
        keys = ", ".join(f'"{column}"' for column, key in columns if key) or "rowid"
        places = ", ".join("?" * len(columns))
        at_once = min(page, _BODY_PARTS_COPIED) if name == "body_parts" else page
        read = f'SELECT * FROM "{name}" ORDER BY {keys} LIMIT {at_once} OFFSET ?'  # noqa: S608 -- names of this file
        clear = f'DELETE FROM "{name}"'  # noqa: S608
        yield CopiedTable(name, clear, read, f'INSERT INTO "{name}" VALUES ({places})')  # noqa: S608


_newest: dict[int, tuple[str, ...]] = {}  # by version; no cache of functools, so that a fork keeps it in any case


def newest() -> tuple[str, ...]:
    """The statements that make the tables of today at once, for a store that never had those of yesterday.

    They follow from the steps, which are taken in memory once in a process.
    """
    if len(STEPS) not in _newest:
        _newest[len(STEPS)] = _made_by(STEPS)
    return _newest[len(STEPS)]


def _made_by(steps: Sequence[Sequence[str]]) -> tuple[str, ...]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _take(connection, _statements(steps), len(steps))
        read = {table.name: table.read for table in tables(connection, 10)}
        made = connection.execute("SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        out = []
        for name, kind, sql in made.fetchall():
            if name.startswith(f"{INDEX_OF_WORDS}_"):
                continue
            out.append(sql)
            if kind == "table" and name in read:
                rows = connection.execute(read[name], (0,)).fetchall()
                out += [f'INSERT INTO "{name}" VALUES ({", ".join(map(repr, row))})' for row in rows]  # noqa: S608
    return tuple(out)
