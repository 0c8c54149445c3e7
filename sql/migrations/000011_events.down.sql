DROP TABLE refusals;
DROP FUNCTION guard_refusal();
DROP FUNCTION record_refusal_event();
DROP TRIGGER termination_receipts_event ON termination_receipts;
DROP FUNCTION record_receipt_event();
DROP TABLE events;
