DROP TABLE project_workspaces;
DROP TABLE project_members;
DROP TABLE projects;
