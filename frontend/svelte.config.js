import { vitePreprocess } from '@sveltejs/vite-plugin-svelte';

export default {
  preprocess: vitePreprocess(),
  // 'external' keeps the styles in a file of their own: nothing is injected at run time (style-src 'self').
  compilerOptions: { runes: true, css: 'external' },
};
