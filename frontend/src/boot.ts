/** What the page was served with (`<script type="application/json" id="pagoda-boot">`); only `ws_path` is certain. */
import type { Member, Tenant } from './lib/protocol/messages';

export interface Boot {
  ws_path: string;
  member?: Member | null;
  tenant?: Tenant | null;
  language?: string | null;
  csrf_token?: string | null;
  login_url?: string | null;
  logout_url?: string | null;
  members_url?: string | null;
  admin_url?: string | null;
  max_message_chars?: number | null;
}

export function readBoot(): Boot {
  const source = document.getElementById('pagoda-boot')?.textContent ?? '{}';
  return { ws_path: '/ws/v1', ...(JSON.parse(source) as Partial<Boot>) };
}

export function socketUrl(path: string): string {
  return `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}${path}`;
}
