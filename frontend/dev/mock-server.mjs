// Serves the built front end and speaks its protocol with made-up answers: for looking at the page and for trying what a
// real engine seldom does. `npm run build && npm run mock`, then open http://127.0.0.1:5174/.
//
// Questions: /code /long /hostile show markup; /length /fail /interrupt /refuse end badly. POST /dev/drop cuts every
// socket, /dev/close?code=4401 closes them with a code, /dev/silence?on=1 refuses new ones.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { WebSocketServer } from 'ws';
import { FakeChat, Refusal } from './fake-chat.mjs';

const dist = join(fileURLToPath(new URL('.', import.meta.url)), '..', 'dist');
const port = Number(process.env.PAGODA_MOCK_PORT ?? 5174);
const types = { '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json', '.svg': 'image/svg+xml' };
// Stricter than the platform's: not even style attributes.
const policy = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'";

const sockets = new Set();
let silent = false;
const chat = new FakeChat({
  tokenMs: Number(process.env.PAGODA_MOCK_TOKEN_MS ?? 25),
  tell: (event) => sockets.forEach((socket) => socket.send(JSON.stringify(event))),
});
const tenants = [
  { id: 't1', slug: 'acme', name: 'Acme Research' },
  { id: 't2', slug: 'school', name: '한빛고등학교' },
];
const member = { id: 'm1', email: 'ada@acme.example', name: 'Ada', role: 'member' };

seed();

const server = createServer(async (request, response) => {
  const url = new URL(request.url, 'http://localhost');
  if (request.method === 'POST') return control(url, response);
  response.setHeader('Content-Security-Policy', policy);
  if (url.pathname.startsWith('/static/')) return file(url.pathname.slice('/static/'.length), response);
  response.setHeader('Content-Type', 'text/html; charset=utf-8');
  response.end(await shell(url.searchParams));
});

async function shell(query) {
  const { file: script, css = [] } = JSON.parse(await readFile(join(dist, 'manifest.json'), 'utf8'))['src/main.ts'];
  const boot = {
    ...{ ws_path: '/ws/v1', member, tenant: tenants[0], language: query.get('language') ?? 'en' },
    ...{ logout_url: '/accounts/logout/', members_url: '/members/', admin_url: null, csrf_token: 'x' },
  };
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Pagoda</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
${css.map((sheet) => `<link rel="stylesheet" href="/static/${sheet}">`).join('')}
<script type="module" src="/static/${script}"></script></head><body><div id="app"></div>
<script type="application/json" id="pagoda-boot">${JSON.stringify(query.has('bare') ? {} : boot)}</script></body></html>`;
}

async function file(path, response) {
  try {
    const content = await readFile(join(dist, normalize(`/${path}`)));
    response.setHeader('Content-Type', types[extname(path)] ?? 'application/octet-stream');
    response.end(content);
  } catch {
    response.writeHead(404).end();
  }
}

function control(url, response) {
  const code = Number(url.searchParams.get('code') ?? 1012);
  if (url.pathname === '/dev/drop') sockets.forEach((socket) => socket.terminate());
  if (url.pathname === '/dev/close') sockets.forEach((socket) => socket.close(code));
  if (url.pathname === '/dev/silence') silent = url.searchParams.get('on') === '1';
  response.end('ok\n');
}

new WebSocketServer({ server, path: '/ws/v1' }).on('connection', (socket) => {
  if (silent) return socket.terminate();
  const send = (message) => socket.readyState === 1 && socket.send(JSON.stringify(message));
  const following = new Map();
  const attach = (generation, afterSeq) => {
    generation.followers.delete(following.get(generation.id));
    const follower = (event) => send(event);
    following.set(generation.id, follower);
    generation.follow(afterSeq, follower);
  };
  let welcomed = false;
  socket.on('close', () => {
    sockets.delete(socket);
    for (const [id, follower] of following) chat.generations.get(id)?.followers.delete(follower);
  });
  socket.on('message', (frame) => {
    const message = JSON.parse(frame);
    if (!welcomed && message.type !== 'hello') return socket.close(4400);
    if (message.type === 'hello') {
      welcomed = true;
      sockets.add(socket);
      const tenant = tenants.find(({ slug }) => slug === message.tenant) ?? tenants[0];
      const model = { id: 'mock', context_length: 8192 };
      return send({ type: 'welcome', version: 1, tenant, tenants, member, model });
    }
    const echo = message.request_id ? { request_id: message.request_id } : {};
    try {
      respond(message, (answer) => send({ ...answer, ...echo }), attach, following);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { code, field } = error;
      const about = { client_id: message.client_id ?? null, generation_id: message.generation_id ?? null };
      send({ type: 'error', code, message: error.message, field, ...about, ...echo });
    }
  });
});

function respond(message, send, attach, following) {
  const generation = () => {
    const found = chat.generations.get(message.generation_id);
    if (!found) throw new Refusal('not_found', 'No such generation.', 'generation_id');
    return found;
  };
  switch (message.type) {
    case 'ping':
      return send({ type: 'pong' });
    case 'conversation.list':
      return send({ type: 'conversation.page', ...chat.page(message.before, message.limit) });
    case 'conversation.open': {
      const conversation = chat.conversation(message.conversation_id);
      const messages = chat.messagesOf(conversation);
      send({ type: 'conversation.opened', conversation, messages });
      for (const { state, generation: running } of messages) {
        if (state === 'streaming') attach(chat.generations.get(running.id), running.seq);
      }
      return;
    }
    case 'conversation.rename': {
      const conversation = chat.conversation(message.conversation_id);
      conversation.title = message.title;
      return send({ type: 'conversation.changed', conversation });
    }
    case 'conversation.delete':
      chat.conversation(message.conversation_id);
      chat.conversations.delete(message.conversation_id);
      return send({ type: 'conversation.deleted', conversation_id: message.conversation_id });
    case 'message.create':
    case 'message.regenerate':
    case 'message.continue': {
      const created = chat.submit(message);
      send({ type: 'message.created', ...created });
      return attach(chat.generations.get(created.generation_id), 0);
    }
    case 'generation.attach':
      return attach(generation(), message.after_seq ?? 0);
    case 'generation.detach':
      return generation().followers.delete(following.get(message.generation_id));
    case 'generation.stop':
      send({ type: 'generation.stopping', generation_id: message.generation_id });
      if (generation().message.state === 'streaming') generation().finish('cancelled', 'cancelled');
      return;
    default:
      throw new Refusal('invalid', `Unknown type ${message.type}.`, 'type');
  }
}

function seed() {
  const titles = [
    'Reading list for the autumn',
    '주간 회의록 정리',
    'SQL: rows per tenant and day',
    'Packing for Jeju',
  ];
  titles.forEach((title, index) => chat.addConversation(title, [0, 1, 1, 4][index]));
  for (let index = 0; index < 70; index += 1) chat.addConversation(`Notes ${70 - index}`, 9 + index);
  const long = chat.addConversation('A very long conversation', 2);
  let parent = null;
  for (let index = 0; index < 400; index += 1) {
    const user = chat.addMessage(long, parent, 'user', `Question ${index + 1}: what about **this**?`);
    const text = `Answer ${index + 1}. It depends on \`x${index}\`.\n\n- first\n- second\n\n\`\`\`js\nconst x = ${index};\n\`\`\``;
    parent = chat.addMessage(long, user.id, 'assistant', text, { finish_reason: 'stop' }).id;
  }
}

server.listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${port}/`));
