-- A store of version 21, the last one with ids over all projects: of two projects each an ended turn, one that waits
-- for approval, an approval of a pattern, and a turn whose process was killed while it made two calls.
PRAGMA application_id = 1953460076;
PRAGMA user_version = 21;
BEGIN TRANSACTION;
CREATE TABLE approvals (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        body TEXT NOT NULL,
        expires_at REAL NOT NULL,
        decided INTEGER NOT NULL DEFAULT 0, stands_until REAL NOT NULL DEFAULT 0,
        UNIQUE (turn_id, call_id)
    ) STRICT
    ;
INSERT INTO "approvals" VALUES(1,'default-ask','default-waiting','call-1','{"id":"default-ask","turn_id":"default-waiting","call_id":"call-1","tool":"git","digest":"digest","reason":"","agent":"agent","asked_at":0.0,"expires_at":1700000060.0,"quorum":1,"project":"default","policy":"","stands_until":0.0,"arguments":{"command":"commit"},"answers":[]}',1700000060.0,0,0.0);
INSERT INTO "approvals" VALUES(2,'default-pattern','default-alone','call-1','{"id":"default-pattern","turn_id":"default-alone","call_id":"call-1","tool":"git","digest":"digest","reason":"","agent":"agent","asked_at":0.0,"expires_at":1700000060.0,"quorum":1,"project":"default","policy":"","stands_until":1700003600.0,"arguments":{"command":"push"},"answers":[{"granted":true,"by":"ann","reason":"","scope":"pattern","pattern":"git push","lasts_s":3600}]}',1700000060.0,1,1700003600.0);
INSERT INTO "approvals" VALUES(3,'acme-ask','acme-waiting','call-1','{"id":"acme-ask","turn_id":"acme-waiting","call_id":"call-1","tool":"git","digest":"digest","reason":"","agent":"agent","asked_at":0.0,"expires_at":1700000060.0,"quorum":1,"project":"acme","policy":"","stands_until":0.0,"arguments":{"command":"commit"},"answers":[]}',1700000060.0,0,0.0);
INSERT INTO "approvals" VALUES(4,'acme-pattern','acme-alone','call-1','{"id":"acme-pattern","turn_id":"acme-alone","call_id":"call-1","tool":"git","digest":"digest","reason":"","agent":"agent","asked_at":0.0,"expires_at":1700000060.0,"quorum":1,"project":"acme","policy":"","stands_until":1700003600.0,"arguments":{"command":"push"},"answers":[{"granted":true,"by":"ann","reason":"","scope":"pattern","pattern":"git push","lasts_s":3600}]}',1700000060.0,1,1700003600.0);
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
    , chain TEXT NOT NULL DEFAULT '') STRICT
    ;
INSERT INTO "audit" VALUES(1,1700000000.0,'allowed','default','','default-ended','call-1','thermometer','','','','',NULL,'{}','b07949358abf2f36f20de0469c4daee4632decae8c43430d00255e5fcc2fc52b');
INSERT INTO "audit" VALUES(2,1700000000.0,'finished','default','','default-ended','call-1','thermometer','','','','',NULL,'{}','a5ea428aadc3716d9c0d730b18e06691db9fbaede40f46fc5c42d698558ea6b1');
INSERT INTO "audit" VALUES(3,1700000000.0,'allowed','default','','default-waiting','call-1','thermometer','','','','',NULL,'{}','e06857fcadcb45ab67758b6a38e5fde175c61009ba1cfa5ca728896d18425fd5');
INSERT INTO "audit" VALUES(4,1700000000.0,'asked','default','','default-waiting','call-1','thermometer','','','','',NULL,'{}','3eabcf5ca99923d8e060dcea4ab11b1edf680c40f9e9ed16e2063058e343b457');
INSERT INTO "audit" VALUES(5,1700000000.0,'approved','default','agent','default-alone','call-1','git','confirmation','','','',NULL,'{"by":"ann","reason":"","digest":"digest","scope":"pattern","pattern":"git push"}','89d7ff04553b7f76f0dad347a67cbae1e50a2fef43c622b090234f8c099828e5');
INSERT INTO "audit" VALUES(6,1700000000.0,'started','default','','default-killed','call-1','thermometer','','','','',NULL,'{}','f71c3da24ed34fd4c402b937517d6e1da6f8573dde587287367f3b6d5706e48f');
INSERT INTO "audit" VALUES(7,1700000000.0,'allowed','acme','','acme-ended','call-1','thermometer','','','','',NULL,'{}','99bc8dfb2d355c3ef6a08f2df1c020f5002ee9a599178238c19a9ca8b56b8b7b');
INSERT INTO "audit" VALUES(8,1700000000.0,'finished','acme','','acme-ended','call-1','thermometer','','','','',NULL,'{}','728d23773934679f443a72d80b09237713b4b143613111069cf9ff1c6de1d8a8');
INSERT INTO "audit" VALUES(9,1700000000.0,'allowed','acme','','acme-waiting','call-1','thermometer','','','','',NULL,'{}','95280f2cce5b02d427f962a5e016865ecc21323d310fb66a93d6a34224de44ef');
INSERT INTO "audit" VALUES(10,1700000000.0,'asked','acme','','acme-waiting','call-1','thermometer','','','','',NULL,'{}','6235b0bdc8d625960e64c1ae48546c7da84b962afa06670b4183164e1888dd82');
INSERT INTO "audit" VALUES(11,1700000000.0,'approved','acme','agent','acme-alone','call-1','git','confirmation','','','',NULL,'{"by":"ann","reason":"","digest":"digest","scope":"pattern","pattern":"git push"}','5b6ff83b2dd32335395892cd8415de8d457ad9cc929c8879c3e53daac711b8f1');
INSERT INTO "audit" VALUES(12,1700000000.0,'started','acme','','acme-killed','call-1','thermometer','','','','',NULL,'{}','ad0544300a75652083b8777934b4c224c7ee3f3d29cee484ac169371635fed16');
INSERT INTO "audit" VALUES(13,1700000000.0,'last','acme','','','','','','','','',NULL,'{}','85c45631fe0c20e26acbae17b4c9d9f8e4c7a411fc21eaad67faa40c38b7916b');
CREATE TABLE audit_cuts (
        seq INTEGER PRIMARY KEY,
        head TEXT NOT NULL,
        at REAL NOT NULL,
        signature TEXT NOT NULL
    ) STRICT
    ;
CREATE TABLE audit_writers (
        seq INTEGER PRIMARY KEY,
        writer TEXT NOT NULL,
        number INTEGER NOT NULL
    ) STRICT
    ;
CREATE TABLE charges (turn_id TEXT NOT NULL PRIMARY KEY, calls INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE cursor_floors (kind TEXT NOT NULL PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE format_tallies (
        model TEXT NOT NULL,
        offered TEXT NOT NULL,
        tally TEXT NOT NULL,
        PRIMARY KEY (model, offered)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "format_tallies" VALUES('acmem','native','{"model":"m","offered":"native"}');
INSERT INTO "format_tallies" VALUES('m','native','{"model":"m","offered":"native"}');
CREATE TABLE lent (
        root TEXT NOT NULL PRIMARY KEY,
        calls INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        cost_usd REAL NOT NULL,
        agents INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "lent" VALUES('acmeacme-waiting',4,0,0.0,1);
INSERT INTO "lent" VALUES('default-waiting',4,0,0.0,1);
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
    ;
INSERT INTO "loop_metrics" VALUES('acme',1,1,1,0.0,0,0,0.0,0,0,7,0,NULL);
INSERT INTO "loop_metrics" VALUES('default',1,1,1,0.0,0,0,0.0,0,0,7,0,NULL);
CREATE TABLE owner_leases (
        owner TEXT NOT NULL PRIMARY KEY,
        until REAL NOT NULL,
        generation INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
CREATE TABLE records (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
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
    ) STRICT
    ;
INSERT INTO "records" VALUES(1,'01a1e3a3-3068-716e-92b4-5f910dc37c05','default','turn.reply','','{"content":"","finish_reason":"stop","calls":[{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-1"}]}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'default-ended',NULL);
INSERT INTO "records" VALUES(2,'default-ended/call-1','default','tool.call','thermometer','{"call":{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-1"},"epoch":1,"args_digest":"[(''room'', ''kitchen'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',2.0,'',NULL,'default-ended','call-1');
INSERT INTO "records" VALUES(3,'01a1e3a3-3096-7097-a6b7-a13bdc959294','default','tool.result','thermometer','{"call_id":"call-1","name":"thermometer","status":"success","content":[{"text":"21 degrees"}],"elapsed_ms":5.0}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'default-ended','call-1');
INSERT INTO "records" VALUES(4,'01a1e3a3-3098-73b4-a1f3-288a02c1d35b','default','turn.reply','','{"content":"21.","finish_reason":"stop"}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'default-ended',NULL);
INSERT INTO "records" VALUES(5,'01a1e3a3-30b7-7641-b956-eea9446e87b1','default','turn.reply','','{"content":"","finish_reason":"stop","calls":[{"name":"git","arguments":{"command":"commit"},"id":"call-1"}]}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'default-waiting',NULL);
INSERT INTO "records" VALUES(6,'default-waiting/call-1','default','tool.call','git','{"call":{"name":"git","arguments":{"command":"commit"},"id":"call-1"},"epoch":1,"args_digest":"[(''command'', ''commit'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',2.0,'',NULL,'default-waiting','call-1');
INSERT INTO "records" VALUES(7,'01a1e3a3-3117-71ee-adab-8484616d677a','default','turn.reply','','{"content":"","finish_reason":"stop","calls":[{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-1"},{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-2"}]}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'default-killed',NULL);
INSERT INTO "records" VALUES(8,'default-killed/call-1','default','tool.call','thermometer','{"call":{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-1"},"epoch":1,"args_digest":"[(''room'', ''kitchen'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',2.0,'',NULL,'default-killed','call-1');
INSERT INTO "records" VALUES(9,'default-killed/call-2','default','tool.call','thermometer','{"call":{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-2"},"epoch":1,"args_digest":"[(''room'', ''kitchen'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',2.0,'',NULL,'default-killed','call-2');
INSERT INTO "records" VALUES(10,'01a1e3a3-3136-77bd-acb0-5576f5076001','acme','turn.reply','','{"content":"","finish_reason":"stop","calls":[{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-1"}]}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'acme-ended',NULL);
INSERT INTO "records" VALUES(11,'acme-ended/call-1','acme','tool.call','thermometer','{"call":{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-1"},"epoch":1,"args_digest":"[(''room'', ''kitchen'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',2.0,'',NULL,'acme-ended','call-1');
INSERT INTO "records" VALUES(12,'01a1e3a3-3139-779d-99ef-58f002356571','acme','tool.result','thermometer','{"call_id":"call-1","name":"thermometer","status":"success","content":[{"text":"21 degrees"}],"elapsed_ms":5.0}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'acme-ended','call-1');
INSERT INTO "records" VALUES(13,'01a1e3a3-3144-7410-964b-364b8a6fbb23','acme','turn.reply','','{"content":"21.","finish_reason":"stop"}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'acme-ended',NULL);
INSERT INTO "records" VALUES(14,'01a1e3a3-3158-75c0-b105-2c0636c115d6','acme','turn.reply','','{"content":"","finish_reason":"stop","calls":[{"name":"git","arguments":{"command":"commit"},"id":"call-1"}]}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'acme-waiting',NULL);
INSERT INTO "records" VALUES(15,'acme-waiting/call-1','acme','tool.call','git','{"call":{"name":"git","arguments":{"command":"commit"},"id":"call-1"},"epoch":1,"args_digest":"[(''command'', ''commit'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',2.0,'',NULL,'acme-waiting','call-1');
INSERT INTO "records" VALUES(16,'01a1e3a3-3166-72fa-bf1a-56e6f7147547','acme','turn.reply','','{"content":"","finish_reason":"stop","calls":[{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-1"},{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-2"}]}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'acme-killed',NULL);
INSERT INTO "records" VALUES(17,'acme-killed/call-1','acme','tool.call','thermometer','{"call":{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-1"},"epoch":1,"args_digest":"[(''room'', ''kitchen'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',2.0,'',NULL,'acme-killed','call-1');
INSERT INTO "records" VALUES(18,'acme-killed/call-2','acme','tool.call','thermometer','{"call":{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-2"},"epoch":1,"args_digest":"[(''room'', ''kitchen'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',2.0,'',NULL,'acme-killed','call-2');
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
    ;
INSERT INTO "spending" VALUES('acme','agent',19675,1,7,0.0,0.0);
INSERT INTO "spending" VALUES('default','agent',19675,1,7,0.0,0.0);
CREATE TABLE starts (
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        starts INTEGER NOT NULL, owner TEXT, until REAL, epoch INTEGER, token TEXT,
        PRIMARY KEY (turn_id, call_id)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "starts" VALUES('acme-killed','call-1',1,'',NULL,1,'01a1e3a3-3167-705a-bb55-48c4c09bd4a1');
INSERT INTO "starts" VALUES('default-killed','call-1',1,'',NULL,1,'01a1e3a3-3128-72b5-9fa4-ddeefccf5421');
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
    ;
INSERT INTO "tool_metrics" VALUES('acme','thermometer',1,1,0,0,0,5.0,5.0,'',NULL);
INSERT INTO "tool_metrics" VALUES('default','thermometer',1,1,0,0,0,5.0,5.0,'',NULL);
CREATE TABLE turns (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
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
    , calls INTEGER NOT NULL DEFAULT 0, tokens INTEGER NOT NULL DEFAULT 0, cost_usd REAL NOT NULL DEFAULT 0, own_time INTEGER NOT NULL DEFAULT 1, since REAL NOT NULL DEFAULT 0, before_s REAL NOT NULL DEFAULT 0, ran_s REAL NOT NULL DEFAULT 0, waits TEXT NOT NULL DEFAULT '') STRICT
    ;
INSERT INTO "turns" VALUES(1,'default-ended','default','agent','main','',1,NULL,'ended','{"system":"","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64,"autonomy":"SUPERVISED","rules":[],"wary":true},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"result_chars":65536,"tools_enabled":true,"envelope":true,"own_time":true,"compact_at":0.75},"question":"How warm is it?"}',NULL,0,'{"reason":"answered","answer":"21."}',1,1.0,1700000000.0,1,0,0.0,1,1700000000.0,0.0,7.28356519975932314991e-02,'');
INSERT INTO "turns" VALUES(2,'default-waiting','default','agent','','',1,NULL,'interrupted','{"system":"","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64,"autonomy":"SUPERVISED","rules":[],"wary":true},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"result_chars":65536,"tools_enabled":true,"envelope":true,"own_time":true,"compact_at":0.75},"question":"How warm is it?"}',NULL,0,NULL,NULL,1.0,1700000000.0,1,0,0.0,1,1700000000.0,0.0,9.2259345998172648251e-02,'');
INSERT INTO "turns" VALUES(3,'default-killed','default','agent','','',1,'b095f9aef061454fb8a8d25b08266b76','running','{"system":"","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64,"autonomy":"SUPERVISED","rules":[],"wary":true},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"result_chars":65536,"tools_enabled":true,"envelope":true,"own_time":true,"compact_at":0.75},"question":"How warm is it?"}',NULL,0,NULL,NULL,1.0,1700000000.0,2,0,0.0,1,1700000000.0,0.0,2.43600700196111574769e-03,'');
INSERT INTO "turns" VALUES(4,'acme-ended','acme','agent','main','',1,NULL,'ended','{"system":"","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64,"autonomy":"SUPERVISED","rules":[],"wary":true},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"result_chars":65536,"tools_enabled":true,"envelope":true,"own_time":true,"compact_at":0.75},"question":"How warm is it?"}',NULL,0,'{"reason":"answered","answer":"21."}',1,1.0,1700000000.0,1,0,0.0,1,1700000000.0,0.0,1.59038810015772469341e-02,'');
INSERT INTO "turns" VALUES(5,'acme-waiting','acme','agent','','',1,NULL,'interrupted','{"system":"","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64,"autonomy":"SUPERVISED","rules":[],"wary":true},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"result_chars":65536,"tools_enabled":true,"envelope":true,"own_time":true,"compact_at":0.75},"question":"How warm is it?"}',NULL,0,NULL,NULL,1.0,1700000000.0,1,0,0.0,1,1700000000.0,0.0,1.67522180054220370948e-02,'');
INSERT INTO "turns" VALUES(6,'acme-killed','acme','agent','','',1,'b095f9aef061454fb8a8d25b08266b76','running','{"system":"","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64,"autonomy":"SUPERVISED","rules":[],"wary":true},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"result_chars":65536,"tools_enabled":true,"envelope":true,"own_time":true,"compact_at":0.75},"question":"How warm is it?"}',NULL,0,NULL,NULL,1.0,1700000000.0,2,0,0.0,1,1700000000.0,0.0,6.11275005212519317865e-04,'');
CREATE TABLE untrusted (
        project TEXT NOT NULL,
        resource TEXT NOT NULL,
        inode TEXT NOT NULL,
        version TEXT NOT NULL,
        origins TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (project, resource)
    ) STRICT, WITHOUT ROWID
    ;
CREATE INDEX turns_running ON turns (owner) WHERE state = 'running';
CREATE UNIQUE INDEX records_by_call ON records (turn_id, call_id, schema_name);
CREATE INDEX audit_by_turn ON audit (turn_id);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
    BEGIN SELECT raise(ABORT, 'the audit log is never changed'); END;
CREATE INDEX calls_by_tool ON records (title) WHERE schema_name = 'tool.call';
CREATE INDEX approvals_open ON approvals (expires_at) WHERE decided = 0;
CREATE INDEX approvals_standing ON approvals (stands_until) WHERE stands_until > 0;
CREATE INDEX audit_by_tool ON audit (tool);
CREATE TRIGGER audit_is_never_cut BEFORE DELETE ON audit
    WHEN old.seq > coalesce((SELECT max(seq) FROM audit_cuts), 0)
    BEGIN SELECT raise(ABORT, 'the audit log is never cut'); END;
CREATE INDEX turns_by_thread ON turns (project, thread, ended);
CREATE INDEX turns_interrupted ON turns (project, agent, updated_at) WHERE state = 'interrupted';
CREATE INDEX audit_writers_newest ON audit_writers (writer, seq);
COMMIT;
