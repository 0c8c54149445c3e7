DROP VIEW lease_proofs;
DROP TABLE termination_receipts;
DROP FUNCTION guard_termination_receipt();
