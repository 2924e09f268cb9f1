import { mount } from 'svelte';
import './app.css';
import App from './App.svelte';
import { readBoot } from './boot';
import { ChatSession } from './lib/chat/session.svelte';
import { language } from './lib/language/language.svelte';

const boot = readBoot();
language.start(boot.language);
const session = new ChatSession(boot);
const target = document.getElementById('app');
if (target) mount(App, { target, props: { session } });
session.start();
