-- Another index, runs_one_active, serves as well.
DROP INDEX runs_active;

-- Replaced by versions that take or say more. Older workers must not take lapsed claims by rules that are no longer so.
DROP FUNCTION IF EXISTS claim_v1(uuid, text[], text, uuid, interval, uuid);
DROP FUNCTION IF EXISTS renew_v1(text, uuid[], uuid[], interval);
DROP FUNCTION IF EXISTS lapsed_v1(int);
DROP FUNCTION IF EXISTS lapse_v1(uuid, uuid);
DROP FUNCTION IF EXISTS audit_v1();
