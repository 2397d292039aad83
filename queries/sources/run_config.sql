-- run_config: what is every setting of a run?
-- kind:   source
-- grain:  one row per run and setting
-- column: run_id VARCHAR run
-- column: key    VARCHAR section and name, as engine.max_num_seqs
-- column: value  VARCHAR value as text; null where the setting is none
FROM stored.run_config;
