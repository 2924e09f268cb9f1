import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

export default defineConfig(({ command }) => ({
  plugins: [svelte()],
  // Built chunks find each other wherever STATIC_URL puts them; the development server answers under Django's default.
  base: command === 'build' ? './' : '/static/',
  build: {
    manifest: 'manifest.json',
    target: 'es2022',
    // Every module is a real file from our own origin, so that `script-src 'self'` is enough.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: { input: 'src/main.ts' },
  },
  server: { port: 5173, strictPort: true },
  test: { environment: 'jsdom', include: ['tests/**/*.test.ts'], testTimeout: 30_000, maxWorkers: 2 },
  resolve: process.env.VITEST ? { conditions: ['browser'] } : undefined,
}));
