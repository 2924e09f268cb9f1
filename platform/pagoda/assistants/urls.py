from django.urls import path

from pagoda.assistants import views

urlpatterns = [path("assistant/", views.assistant, name="assistant")]
