from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import DatabaseError, transaction

from qualityhub.platform.audit import AuditEvent, audit

pytestmark = pytest.mark.django_db


def test_no_migration_is_missing():
    call_command("makemigrations", "accounts", "qh_platform", "registry", check=True, dry_run=True)


def test_audit_events_refuse_change_and_deletion():
    event = audit(actor="system", action="thing.made")
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
        AuditEvent.objects.filter(pk=event.pk).update(actor="somebody else")
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
        event.delete()
    assert AuditEvent.objects.get(pk=event.pk).actor == "system"
