from django.urls import path

from pagoda.tenants.views import invitation, keys, members

urlpatterns = [
    path("invitations/<str:token>/", invitation.invitation, name="invitation"),
    path("members/", members.members, name="members"),
    path("members/cache", members.change_cache_scope, name="members_cache"),
    path("members/invite", members.invite, name="members_invite"),
    path("members/invitations/<uuid:invitation_id>/revoke", members.revoke_invitation, name="members_revoke"),
    path("members/<uuid:membership_id>/role", members.change_role, name="members_role"),
    path("members/<uuid:membership_id>/remove", members.remove_member, name="members_remove"),
    path("members/keys", keys.create_key, name="members_key"),
    path("members/keys/<uuid:key_id>/", keys.key, name="members_key_change"),
    path("members/keys/<uuid:key_id>/rotate", keys.rotate_key, name="members_key_rotate"),
    path("members/keys/<uuid:key_id>/revoke", keys.revoke_key, name="members_key_revoke"),
]
