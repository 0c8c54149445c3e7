DROP TABLE lease_sightings;
DROP TABLE writer_silences;
DROP FUNCTION record_silence_event();
DROP FUNCTION guard_writer_silence();
DROP TABLE stop_requests;
DROP FUNCTION record_stop_request_event();
DROP FUNCTION require_open_tenure();
DROP FUNCTION guard_stop_request();
