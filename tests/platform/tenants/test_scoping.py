import pytest

from pagoda.tenants.models import Membership
from pagoda.tenants.scoping import TenantScopeRequired, tenant_scope

pytestmark = pytest.mark.django_db


def test_a_query_outside_a_scope_is_refused(acme):
    with pytest.raises(TenantScopeRequired):
        Membership.objects.all()


def test_a_query_sees_the_tenant_in_scope_alone(acme, rival):
    with tenant_scope(acme.tenant.id):
        assert {row.user for row in Membership.objects.all()} == {acme.admin, acme.member}
        assert rival.tenant.memberships.count() == 0
