DROP FUNCTION principal_reads_company(uuid, text, uuid, uuid);
DROP FUNCTION principal_reads_workspace(uuid, uuid, text, uuid);
DROP FUNCTION principal_reads_issue(uuid, uuid, text, uuid);
DROP FUNCTION principal_reads_project(uuid, uuid, text, uuid);
