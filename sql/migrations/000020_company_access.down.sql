DROP FUNCTION principal_reads_company(uuid, text, uuid, uuid);
