-- A store of version 1, as `.dump` of the sqlite3 shell writes it.
BEGIN TRANSACTION;
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
    ;
INSERT INTO "audit" VALUES(1,1700000001.0,'allowed','default','warden','0190a000-0000-7000-8000-000000000001','0190a000-0000-7000-8000-000000000010','thermometer','','','','9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',NULL,'{}');
INSERT INTO "audit" VALUES(2,1700000001.0,'allowed','default','warden','0190a000-0000-7000-8000-000000000001','0190a000-0000-7000-8000-000000000011','thermometer','','','','9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',NULL,'{}');
INSERT INTO "audit" VALUES(3,1700000001.0,'finished','default','warden','0190a000-0000-7000-8000-000000000001','0190a000-0000-7000-8000-000000000010','thermometer','','','','9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',NULL,'{}');
INSERT INTO "audit" VALUES(4,1700000001.0,'finished','default','warden','0190a000-0000-7000-8000-000000000001','0190a000-0000-7000-8000-000000000011','thermometer','','','','9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',NULL,'{}');
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
INSERT INTO "records" VALUES(1,'01a1dd64-1cdb-730b-911c-d33873be2062','default','turn.reply','','{"content":"Let me look.","finish_reason":"tool_calls","calls":[{"name":"thermometer","arguments":{"room":"kitchen"},"id":"0190a000-0000-7000-8000-000000000010","alias":"call_0"},{"name":"thermometer","arguments":{"room":"cellar"},"id":"0190a000-0000-7000-8000-000000000011","alias":"call_1","position":1}],"usage":{"input":100,"output":20},"model":"scripted:one"}','[]',1,NULL,'project','normal',NULL,'warden',1700000001.5,'',NULL,'0190a000-0000-7000-8000-000000000001',NULL);
INSERT INTO "records" VALUES(2,'0190a000-0000-7000-8000-000000000020','default','tool.call','thermometer','{"call":{"name":"thermometer","arguments":{"room":"kitchen"},"id":"0190a000-0000-7000-8000-000000000010","alias":"call_0"},"epoch":1,"args_digest":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","effect":"unsafe","tool_version":""}','[]',1,NULL,'project','normal',NULL,'warden',1700000001.0,'',NULL,'0190a000-0000-7000-8000-000000000001','0190a000-0000-7000-8000-000000000010');
INSERT INTO "records" VALUES(3,'0190a000-0000-7000-8000-000000000021','default','tool.call','thermometer','{"call":{"name":"thermometer","arguments":{"room":"cellar"},"id":"0190a000-0000-7000-8000-000000000011","alias":"call_1","position":1},"epoch":1,"args_digest":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","effect":"unsafe","tool_version":""}','[]',1,NULL,'project','normal',NULL,'warden',1700000001.0,'',NULL,'0190a000-0000-7000-8000-000000000001','0190a000-0000-7000-8000-000000000011');
INSERT INTO "records" VALUES(4,'01a1dd64-1cdc-766b-a199-96d038b707b4','default','tool.result','thermometer','{"call_id":"0190a000-0000-7000-8000-000000000010","name":"thermometer","status":"success","content":[{"text":"21 degrees"}],"structured":{"celsius":21},"elapsed_ms":12.5}','[]',1,NULL,'project','normal',NULL,'warden',1700000001.5,'',NULL,'0190a000-0000-7000-8000-000000000001','0190a000-0000-7000-8000-000000000010');
INSERT INTO "records" VALUES(5,'01a1dd64-1cdd-7302-bd84-a7af74d50964','default','tool.result','thermometer','{"call_id":"0190a000-0000-7000-8000-000000000011","name":"thermometer","status":"failed","content":[{"error":"the sensor is silent","code":"unavailable"}],"error":{"code":"unavailable","message":"the sensor is silent","retryable":true},"elapsed_ms":3.0}','[]',1,NULL,'project','normal',NULL,'warden',1700000001.5,'',NULL,'0190a000-0000-7000-8000-000000000001','0190a000-0000-7000-8000-000000000011');
INSERT INTO "records" VALUES(6,'01a1dd64-1cdd-7302-bd84-a7b00b61adfa','default','turn.reply','','{"content":"21 degrees in the kitchen.","finish_reason":"stop"}','[]',1,NULL,'project','normal',NULL,'warden',1700000001.5,'',NULL,'0190a000-0000-7000-8000-000000000001',NULL);
CREATE TABLE starts (
        turn_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        starts INTEGER NOT NULL,
        PRIMARY KEY (turn_id, call_id)
    ) STRICT, WITHOUT ROWID
    ;
INSERT INTO "starts" VALUES('0190a000-0000-7000-8000-000000000001','0190a000-0000-7000-8000-000000000010',1);
INSERT INTO "starts" VALUES('0190a000-0000-7000-8000-000000000001','0190a000-0000-7000-8000-000000000011',1);
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
    ) STRICT
    ;
INSERT INTO "turns" VALUES(1,'0190a000-0000-7000-8000-000000000001','default','warden','house','scripted:one',1,NULL,'ended','{"system":"Be brief.","grant":{"tier":"WALK","permissions":[],"roots":[],"network":[],"platform":"","confirmed":[],"max_calls":64},"limits":{"iterations":10,"consecutive_failures":3,"parallel":5,"calls_per_step":32,"repeats":3,"tokens":null,"deadline_s":null,"result_chars":20000,"tools_enabled":true},"question":"How warm is it?"}',NULL,0,'{"reason":"answered","answer":"21 degrees in the kitchen."}',1,1700000000.0,1700000001.5);
CREATE INDEX turns_by_thread ON turns (thread, ended);
CREATE INDEX turns_running ON turns (owner) WHERE state = 'running';
CREATE UNIQUE INDEX records_by_call ON records (turn_id, call_id, schema_name);
CREATE INDEX records_by_kind ON records (schema_name, title);
CREATE INDEX audit_by_turn ON audit (turn_id);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
    BEGIN SELECT raise(ABORT, 'the audit log is never changed'); END;
CREATE TRIGGER audit_is_never_cut BEFORE DELETE ON audit
    BEGIN SELECT raise(ABORT, 'the audit log is never cut'); END;
COMMIT;
PRAGMA application_id = 1953460076;
PRAGMA user_version = 1;
