DROP FUNCTION refuse_history_change();
DROP TABLE instance_settings;
DROP TABLE companies;
