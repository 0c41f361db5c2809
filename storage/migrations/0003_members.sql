-- Who let a member in, and the threads of a member without looking at all threads of the workspace.
ALTER TABLE members ADD COLUMN added_by text NOT NULL DEFAULT 'system';
ALTER TABLE members ADD COLUMN added_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX members_of_principal ON members (principal, thread_id);
