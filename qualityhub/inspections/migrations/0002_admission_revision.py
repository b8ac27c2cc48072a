from django.db import migrations

# What a manifest says hangs on tasks (admitted, role), versions (admission), environments and
# domains (slugs, moves). Whoever writes them, the team's revision rises in the same transaction.
FUNCTIONS = """
CREATE FUNCTION inspections_revision_raise(teams bigint[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO inspections_admissionrevision AS r (team_id, revision, changed_at)
    SELECT team, 1, clock_timestamp() FROM (
        SELECT DISTINCT t.id AS team FROM unnest(teams) AS u (id)
        JOIN accounts_team t ON t.id = u.id ORDER BY 1
    ) AS touched
    ON CONFLICT (team_id) DO UPDATE SET revision = r.revision + 1, changed_at = clock_timestamp();
$$;
CREATE FUNCTION inspections_tasks_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM inspections_revision_raise(ARRAY(
        SELECT DISTINCT e.team_id FROM new_rows n
        JOIN old_rows o ON o.id = n.id
        JOIN registry_environmentversion v ON v.id = n.version_id
        JOIN registry_environment e ON e.id = v.environment_id
        WHERE n.admitted IS DISTINCT FROM o.admitted
           OR (n.admitted AND n.role IS DISTINCT FROM o.role)
    ));
    RETURN NULL;
END $$;
CREATE FUNCTION inspections_versions_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM inspections_revision_raise(ARRAY(
        SELECT DISTINCT e.team_id FROM new_rows n
        JOIN old_rows o ON o.id = n.id
        JOIN registry_environment e ON e.id = n.environment_id
        WHERE n.admission IS DISTINCT FROM o.admission
    ));
    RETURN NULL;
END $$;
CREATE FUNCTION inspections_versions_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM inspections_revision_raise(ARRAY(
        SELECT DISTINCT e.team_id FROM old_rows o
        JOIN registry_environment e ON e.id = o.environment_id
        WHERE o.admission IS NOT NULL
    ));
    RETURN NULL;
END $$;
CREATE FUNCTION inspections_places_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM inspections_revision_raise(ARRAY(
        SELECT n.team_id FROM new_rows n JOIN old_rows o ON o.id = n.id WHERE n IS DISTINCT FROM o
        UNION SELECT o.team_id FROM new_rows n JOIN old_rows o ON o.id = n.id
        WHERE n.team_id <> o.team_id
    ));
    RETURN NULL;
END $$;
CREATE FUNCTION inspections_environments_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM inspections_revision_raise(ARRAY(SELECT DISTINCT o.team_id FROM old_rows o));
    RETURN NULL;
END $$;
"""
UPDATES = (
    ("registry_task", "inspections_tasks_changed"),
    ("registry_environmentversion", "inspections_versions_changed"),
    ("registry_environment", "inspections_places_changed"),
    ("registry_domain", "inspections_places_changed"),
)
DELETES = (
    ("registry_environmentversion", "inspections_versions_gone"),
    ("registry_environment", "inspections_environments_gone"),
)
TRIGGERS = "".join(
    f"CREATE TRIGGER admission_revision_update AFTER UPDATE ON {table}"
    f" REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows"
    f" FOR EACH STATEMENT EXECUTE FUNCTION {function}();\n"
    for table, function in UPDATES
) + "".join(
    f"CREATE TRIGGER admission_revision_delete AFTER DELETE ON {table}"
    f" REFERENCING OLD TABLE AS old_rows"
    f" FOR EACH STATEMENT EXECUTE FUNCTION {function}();\n"
    for table, function in DELETES
)
UNDO = (
    "".join(f"DROP TRIGGER admission_revision_update ON {table};\n" for table, _ in UPDATES)
    + "".join(f"DROP TRIGGER admission_revision_delete ON {table};\n" for table, _ in DELETES)
    + """
DROP FUNCTION inspections_environments_gone();
DROP FUNCTION inspections_places_changed();
DROP FUNCTION inspections_versions_gone();
DROP FUNCTION inspections_versions_changed();
DROP FUNCTION inspections_tasks_changed();
DROP FUNCTION inspections_revision_raise(bigint[]);
"""
)


class Migration(migrations.Migration):
    dependencies = [
        ("inspections", "0001_initial"),
        ("registry", "0001_initial"),
    ]

    operations = [migrations.RunSQL(FUNCTIONS + TRIGGERS, UNDO)]
