DROP TABLE permission_grants;
DROP TABLE company_memberships;
