-- A store of version 15, the last one without leases of calls: an ended turn, one that waits for approval, an approval of a
-- pattern, a turn of another project with sub-agents, and two turns whose process was killed while they made calls.
PRAGMA application_id = 1953460076;
PRAGMA user_version = 15;
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
INSERT INTO "approvals" VALUES(1,'ask-1','waiting','call-1','{"id":"ask-1","turn_id":"waiting","call_id":"call-1","tool":"git","digest":"digest","reason":"git changes things","agent":"agent","asked_at":1700000000.0,"expires_at":3276800000.0,"quorum":1,"project":"default","policy":"","stands_until":0.0,"arguments":{"command":"commit"},"answers":[]}',3276800000.0,0,0.0);
INSERT INTO "approvals" VALUES(2,'ask-2','alone','call-1','{"id":"ask-2","turn_id":"alone","call_id":"call-1","tool":"git","digest":"digest","reason":"","agent":"agent","asked_at":1700000000.0,"expires_at":1700086400.0,"quorum":1,"project":"default","policy":"","stands_until":1702592000.0,"arguments":{"command":"push"},"answers":[{"granted":true,"by":"ann","reason":"","scope":"pattern","pattern":"git push","lasts_s":2592000}]}',1700086400.0,1,1702592000.0);
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
INSERT INTO "audit" VALUES(1,1700000000.0,'allowed','default','agent','ended','call-1','thermometer','','','','',NULL,'{}','85967b92abda0e7b00bc22317f9a35494d7e2f2e7a27ce96ef4e57462d3381f5');
INSERT INTO "audit" VALUES(2,1700000000.0,'finished','default','agent','ended','call-1','thermometer','','success','','',NULL,'{}','856e8888d7e1e8dfc8031aedd7c561f9e88f26ea95defeb5d78f277399153c5a');
INSERT INTO "audit" VALUES(3,1700000000.0,'awaiting_approval','default','agent','waiting','call-1','git','','','','',NULL,'{}','a782524063bedc7021fcc8d5d7b4f40357ff3fc31b52eda1f4cb87ce1ef71247');
INSERT INTO "audit" VALUES(4,1700000000.0,'approved','default','agent','alone','call-1','git','confirmation','','','',NULL,'{"by":"ann","reason":"","digest":"digest","scope":"pattern","pattern":"git push"}','89ff2aaab694119310f27c8da5a56bf1e66d7698042e543cbb599d31e99cfd53');
INSERT INTO "audit" VALUES(5,1700000000.0,'allowed','default','agent','killed','call-1','launch','','','','',NULL,'{}','b45b2c7a3aadd0b82d06c1a80628324251e47d260c6a63848e313a23ab437c99');
INSERT INTO "audit" VALUES(6,1700000000.0,'allowed','default','agent','killed','call-2','launch','','','','',NULL,'{}','4e6f9936e62f9c91e51ee13cf926996fe2a41b27525d52b8e8cf746c13277379');
INSERT INTO "audit" VALUES(7,1700000000.0,'started','default','agent','killed','call-1','launch','','','','',NULL,'{}','65532c22d771c143249b1e5c3845e496c6ee22b0690c290b2b7a16e708b8e094');
INSERT INTO "audit" VALUES(8,1700000000.0,'allowed','default','agent','alone-killed','call-1','launch','','','','',NULL,'{}','110059bc0013120ffea70ec12df878159039a54994e963381bb48d501dcfc51f');
CREATE TABLE audit_cuts (
        seq INTEGER PRIMARY KEY,
        head TEXT NOT NULL,
        at REAL NOT NULL,
        signature TEXT NOT NULL
    ) STRICT
    ;
CREATE TABLE charges (turn_id TEXT NOT NULL PRIMARY KEY, calls INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE format_tallies (
        model TEXT NOT NULL,
        offered TEXT NOT NULL,
        tally TEXT NOT NULL,
        PRIMARY KEY (model, offered)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "format_tallies" VALUES('m','native','{"model":"m","offered":"native"}');
CREATE TABLE lent (
        root TEXT NOT NULL PRIMARY KEY,
        calls INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        cost_usd REAL NOT NULL,
        agents INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "lent" VALUES('tenant',4,0,0.0,1);
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
INSERT INTO "loop_metrics" VALUES('default',1,1,1,0.0,0,0,0.0,0,0,10,5,NULL);
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
INSERT INTO "records" VALUES(1,'01a1e314-5f8d-767a-a304-f3c8b3473cef','default','turn.reply','','{"content":"","finish_reason":"stop","calls":[{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-1"}]}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'ended',NULL);
INSERT INTO "records" VALUES(2,'ended/call-1','default','tool.call','thermometer','{"call":{"name":"thermometer","arguments":{"room":"kitchen"},"id":"call-1"},"epoch":1,"args_digest":"[(''room'', ''kitchen'')]","effect":"unsafe","tool_version":"1","attempt":1}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'ended','call-1');
INSERT INTO "records" VALUES(3,'01a1e314-5f92-7707-b994-30393cb8370d','default','tool.result','thermometer','{"call_id":"call-1","name":"thermometer","status":"success","content":[{"text":"21 degrees"}],"elapsed_ms":12.5}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'ended','call-1');
INSERT INTO "records" VALUES(4,'01a1e314-5fb1-71a6-8fff-65c7f1b1e5e0','default','turn.reply','','{"content":"","finish_reason":"stop","calls":[{"name":"git","arguments":{"command":"commit"},"id":"call-1"}]}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'waiting',NULL);
INSERT INTO "records" VALUES(5,'waiting/call-1','default','tool.call','git','{"call":{"name":"git","arguments":{"command":"commit"},"id":"call-1"},"epoch":1,"args_digest":"[(''command'', ''commit'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'waiting','call-1');
INSERT INTO "records" VALUES(6,'alone/call-1','default','tool.call','git','{"call":{"name":"git","arguments":{"command":"push"},"id":"call-1"},"epoch":1,"args_digest":"[(''command'', ''push'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'alone','call-1');
INSERT INTO "records" VALUES(7,'01a1e314-6004-7077-b5cc-b28f931501a0','default','turn.reply','','{"content":"","finish_reason":"stop","calls":[{"name":"launch","arguments":{"what":"one"},"id":"call-1"},{"name":"launch","arguments":{"what":"two"},"id":"call-2"}]}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'killed',NULL);
INSERT INTO "records" VALUES(8,'killed/call-1','default','tool.call','launch','{"call":{"name":"launch","arguments":{"what":"one"},"id":"call-1"},"epoch":1,"args_digest":"[(''what'', ''one'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'killed','call-1');
INSERT INTO "records" VALUES(9,'killed/call-2','default','tool.call','launch','{"call":{"name":"launch","arguments":{"what":"two"},"id":"call-2"},"epoch":1,"args_digest":"[(''what'', ''two'')]","effect":"unsafe","tool_version":"1"}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'killed','call-2');
INSERT INTO "records" VALUES(10,'01a1e314-601c-7541-a908-0643c3b70404','default','turn.reply','','{"content":"","finish_reason":"stop","calls":[{"name":"launch","arguments":{"what":"one"},"id":"call-1"}]}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'alone-killed',NULL);
INSERT INTO "records" VALUES(11,'alone-killed/call-1','default','tool.call','launch','{"call":{"name":"launch","arguments":{"what":"one"},"id":"call-1"},"epoch":1,"args_digest":"[(''what'', ''one'')]","effect":"unsafe","tool_version":"1","attempt":1}','[]',1,NULL,'project','normal',NULL,'agent',1700000000.0,'',NULL,'alone-killed','call-1');
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
INSERT INTO "spending" VALUES('default','agent',19675,1,15,0.0,0.0);
CREATE TABLE starts (
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        starts INTEGER NOT NULL,
        PRIMARY KEY (turn_id, call_id)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "starts" VALUES('killed','call-1',1);
INSERT INTO "starts" VALUES('waiting','call-1',0);
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
INSERT INTO "tool_metrics" VALUES('default','thermometer',1,1,0,0,0,12.5,12.5,'',NULL);
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
    , calls INTEGER NOT NULL DEFAULT 0, tokens INTEGER NOT NULL DEFAULT 0, cost_usd REAL NOT NULL DEFAULT 0, own_time INTEGER NOT NULL DEFAULT 1, since REAL NOT NULL DEFAULT 0, before_s REAL NOT NULL DEFAULT 0, ran_s REAL NOT NULL DEFAULT 0) STRICT
    ;
INSERT INTO "turns" VALUES(1,'ended','default','agent','main','',1,NULL,'ended','{"system":"","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64,"autonomy":"SUPERVISED","rules":[],"wary":true},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"result_chars":65536,"tools_enabled":true,"envelope":true,"own_time":true,"compact_at":0.75},"question":"How warm is it?"}',NULL,0,'{"reason":"answered","answer":"21 degrees."}',1,1700000000.0,1700000000.0,1,0,0.0,1,1700000000.0,0.0,1.92339220011490397155e-02);
INSERT INTO "turns" VALUES(2,'waiting','default','agent','','',1,NULL,'interrupted','{"system":"","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64,"autonomy":"SUPERVISED","rules":[],"wary":true},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"result_chars":65536,"tools_enabled":true,"envelope":true,"own_time":true,"compact_at":0.75},"question":"Commit it."}',NULL,0,NULL,NULL,1700000000.0,1700000000.0,1,0,0.0,1,1700000000.0,0.0,2.3746423998090904206e-02);
INSERT INTO "turns" VALUES(3,'tenant','acme','agent','main','',1,NULL,'interrupted','{"system":"","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64,"autonomy":"SUPERVISED","rules":[],"wary":true},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"result_chars":65536,"tools_enabled":true,"envelope":true,"own_time":true,"compact_at":0.75},"question":"Ask others."}',NULL,0,NULL,NULL,1700000000.0,1700000000.0,0,0,0.0,1,1700000000.0,0.0,1.86075640012859366834e-02);
INSERT INTO "turns" VALUES(4,'killed','default','agent','','',1,'cfea8689327e4f9282d9ce3d37b4a7b1','running','{"system":"","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64,"autonomy":"SUPERVISED","rules":[],"wary":true},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"result_chars":65536,"tools_enabled":true,"envelope":true,"own_time":true,"compact_at":0.75},"question":"Launch two."}',NULL,0,NULL,NULL,1700000000.0,1700000000.0,2,0,0.0,1,1700000000.0,0.0,8.19771900205523706972e-03);
INSERT INTO "turns" VALUES(5,'alone-killed','default','agent','','',1,'cfea8689327e4f9282d9ce3d37b4a7b1','running','{"system":"","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64,"autonomy":"SUPERVISED","rules":[],"wary":true},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"result_chars":65536,"tools_enabled":true,"envelope":true,"own_time":true,"compact_at":0.75},"question":"Launch one."}',NULL,0,NULL,NULL,1700000000.0,1700000000.0,1,0,0.0,1,1700000000.0,0.0,0.000870769999892218);
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
CREATE INDEX turns_by_thread ON turns (thread, ended);
CREATE INDEX turns_running ON turns (owner) WHERE state = 'running';
CREATE UNIQUE INDEX records_by_call ON records (turn_id, call_id, schema_name);
CREATE INDEX audit_by_turn ON audit (turn_id);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
    BEGIN SELECT raise(ABORT, 'the audit log is never changed'); END;
CREATE INDEX calls_by_tool ON records (title) WHERE schema_name = 'tool.call';
CREATE INDEX approvals_open ON approvals (expires_at) WHERE decided = 0;
CREATE INDEX approvals_standing ON approvals (stands_until) WHERE stands_until > 0;
CREATE INDEX turns_interrupted ON turns (agent, updated_at) WHERE state = 'interrupted';
CREATE INDEX audit_by_tool ON audit (tool);
CREATE TRIGGER audit_is_never_cut BEFORE DELETE ON audit
    WHEN old.seq > coalesce((SELECT max(seq) FROM audit_cuts), 0)
    BEGIN SELECT raise(ABORT, 'the audit log is never cut'); END;
COMMIT;
