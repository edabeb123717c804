"""Texts that would be statements if anybody put them into one: five hundred, written and multiplied."""

from itertools import product

_WRITTEN = (
    "'", '"', "`", "''", "'''", "\\'", "\\", "%", "_", "*", ";", "--", "/*", "*/", "#", "(", ")", "()", "NULL", "null",
    "true", "1", "0", "-1", "1e308", "0x27", "char(39)", "?", "?1", ":id", "@id", "$id", "{}", "%s", "%(id)s", "{0}",
    "a\x00b", "'\x00", "\x1a", "\u02bc OR 1=1", "\uff07 OR 1=1", "\u2019 OR 1=1", "\ud800'", "%27 OR 1=1", "%2527",
    "' AND 'a' LIKE 'a", "x' AND email IS NULL; --", "' GROUP BY 1 HAVING 1=1 --", "' ORDER BY 100 --",
    "CASE WHEN 1 THEN 'turn-1' END", "'; ATTACH DATABASE '/tmp/x' AS x; --", "'; PRAGMA writable_schema=1; --",
    "'; VACUUM INTO '/tmp/x'; --", "' || load_extension('/tmp/x') || '", "' || readfile('/etc/passwd') || '",
    "'; DETACH main; --", "'; BEGIN EXCLUSIVE; --", "'; ROLLBACK; --", "' MATCH 'x", "' GLOB '*", "' REGEXP '.*",
    "'/**/OR/**/1=1/**/--", "'\tOR\t1=1\n--", "'+OR+1=1--", "' oR 1=1 --", "' || 'x' IS NOT NULL --", "''||''",
    "'; EXEC xp_cmdshell('id'); --", "'; COPY t TO PROGRAM 'id'; --", "' AND SLEEP(9) --", "'; SELECT pg_sleep(9); --",
    "'; WAITFOR DELAY '0:0:9' --", "' AND randomblob(1000000000) --", "' INTO OUTFILE '/tmp/x' --", "turn-1' --",
)  # fmt: skip
_QUOTES = ("'", '"', "')", "'))", "`", "]")
_WISHES = (
    " OR 1=1", " OR 'a'='a'", " OR TRUE", " OR 1 IS 1", " OR rowid > 0", " OR EXISTS (SELECT 1)",
    " UNION SELECT body FROM approvals", " UNION ALL SELECT NULL, NULL, NULL", " AND 1=(SELECT count(*) FROM turns)",
    "; DROP TABLE approvals", "; DELETE FROM audit", "; UPDATE turns SET state = 'ended'",
    "; INSERT INTO audit DEFAULT VALUES", " UNION SELECT sql FROM sqlite_master", " || (SELECT context FROM records)",
)  # fmt: skip
_ENDS = ("", " --", " /*", ";", "\x00")

TEXTS = tuple(dict.fromkeys((*_WRITTEN, *(f"turn-1{''.join(parts)}" for parts in product(_QUOTES, _WISHES, _ENDS)))))
AT_COMMANDS = tuple(text for text in TEXTS if text in _WRITTEN or not text.endswith(_ENDS[1:]))
"""Each way out of a quotation with each wish once, for doors that take as long as a command."""
