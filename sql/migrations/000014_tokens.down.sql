DROP TABLE signing_keys;
DROP TABLE tokens;
