"""A tenant of a hundred members in the operators' admin: in pages, at the price of one page, beside a rival."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from pagoda.tenants.admin_rows import PER_PAGE
from pagoda.tenants.models import AuditEntry, Membership, Role, User

pytestmark = pytest.mark.django_db

MEMBERS = 4 * PER_PAGE


@pytest.fixture
def desk(client, operator):
    client.force_login(operator)
    return client


def join(party, count):
    """Members beside the admin and the member that every party has, in the order of their addresses."""
    slug = party.tenant.slug
    people = User.objects.bulk_create(User(email=f"p{n:03}@{slug}.example", name=f"P{n}") for n in range(count))
    rows = [Membership(tenant=party.tenant, user=each, role=Role.MEMBER) for each in people]
    return Membership.across_tenants.bulk_create(rows)


def address(party, page=None):
    query = "" if page is None else f"?memberships-page={page}"
    return f"/admin/tenants/tenant/{party.tenant.pk}/change/{query}"


def formset_of(answer):
    (found,) = (
        each.formset for each in answer.context["inline_admin_formsets"] if each.formset.prefix == "memberships"
    )
    return found


def filled(answer):
    """What a browser sends back of a page that nobody has changed."""
    forms = [answer.context["adminform"].form]
    for each in answer.context["inline_admin_formsets"]:
        forms += [each.formset.management_form, *each.formset.forms]
    sent = {}
    for form in forms:
        for name, field in form.fields.items():
            value = form.get_initial_for_field(field, name)
            if value is not None:
                sent[form.add_prefix(name)] = str(getattr(value, "pk", value))
    return sent


def index_of(answer, row):
    return [form.instance.pk for form in formset_of(answer).initial_forms].index(row.pk)


def test_every_member_is_on_one_of_the_pages_and_no_rivals(desk, acme, rival):
    join(acme, MEMBERS)
    join(rival, MEMBERS)
    shown = []
    for page in range(1, 6):
        shown += [form.instance.user.email for form in formset_of(desk.get(address(acme, page))).initial_forms]
    everybody = Membership.across_tenants.filter(tenant=acme.tenant).values_list("user__email", flat=True)
    assert shown == sorted(everybody)
    text = desk.get(address(acme)).content.decode()
    assert re.search(r"memberships-page=5\b", text)
    assert "rival.example" not in text


def test_a_page_costs_the_same_however_many_members_there_are(desk, acme, rival):
    join(rival, 1)
    join(acme, PER_PAGE)

    def queries():
        desk.get(address(acme))
        with CaptureQueriesContext(connection) as made:
            assert desk.get(address(acme)).status_code == 200
        return len(made)

    few = queries()
    people = User.objects.bulk_create(User(email=f"q{n:03}@acme.example", name="Q") for n in range(MEMBERS))
    Membership.across_tenants.bulk_create(
        Membership(tenant=acme.tenant, user=each, role=Role.MEMBER) for each in people
    )
    assert queries() <= few


def test_a_change_on_a_later_page_is_saved_and_changes_that_row_alone(desk, acme, rival):
    row = join(acme, MEMBERS)[60]
    answer = desk.get(address(acme, 3))
    name = f"memberships-{index_of(answer, row)}-role"
    assert desk.post(address(acme, 3), filled(answer) | {name: Role.ADMIN.value}).status_code == 302
    admins = Membership.across_tenants.filter(tenant=acme.tenant, role=Role.ADMIN)
    assert set(admins.values_list("user_id", flat=True)) == {acme.admin.pk, row.user_id}
    assert AuditEntry.across_tenants.get(what="member.role").details["member"] == str(row.user_id)
    assert Membership.across_tenants.filter(tenant=acme.tenant).count() == MEMBERS + 2


def test_a_row_that_has_moved_to_another_page_meanwhile_is_the_one_that_is_removed(desk, acme, rival):
    """Thirty members come before it while the page is being looked at; and the page's number is lost on the way."""
    row = join(acme, MEMBERS)[60]
    answer = desk.get(address(acme, 3))
    sent = filled(answer) | {f"memberships-{index_of(answer, row)}-DELETE": "on"}
    first = User.objects.bulk_create(User(email=f"a{n:03}@acme.example", name="A") for n in range(30))
    Membership.across_tenants.bulk_create(Membership(tenant=acme.tenant, user=each, role=Role.MEMBER) for each in first)
    assert desk.post(address(acme), sent).status_code == 302
    left = Membership.across_tenants.filter(tenant=acme.tenant)
    assert left.count() == MEMBERS + 2 + 30 - 1
    assert not left.filter(pk=row.pk).exists()


def test_a_rivals_row_is_nothing_to_a_page_it_is_sent_with(desk, acme, rival):
    theirs = join(rival, 1)[0]
    row = join(acme, MEMBERS)[60]
    answer = desk.get(address(acme, 3))
    place = f"memberships-{index_of(answer, row)}"
    sent = filled(answer) | {f"{place}-id": str(theirs.pk), f"{place}-DELETE": "on", f"{place}-role": "admin"}
    desk.post(address(acme, 3), sent)
    theirs.refresh_from_db()
    assert (theirs.tenant, theirs.role) == (rival.tenant, Role.MEMBER)
    for nonsense in ("", "x", "0" * 32):
        assert desk.post(address(acme, 3), sent | {f"{place}-id": nonsense}).status_code in (200, 302)
