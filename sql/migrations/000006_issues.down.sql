DROP TABLE issue_access_grants;
DROP TABLE issues;
