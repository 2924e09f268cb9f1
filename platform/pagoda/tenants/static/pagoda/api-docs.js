// The interactive page of the API: its description with an example for every body, so that "Try it out" begins with
// something that works. Nothing is asked of another host, and the key is forgotten with the page.
(async () => {
  const main = document.getElementById("swagger-ui");
  const settings = JSON.parse(document.getElementById("swagger-settings").textContent);
  try {
    const [spec, examples] = await Promise.all([settings.url, main.dataset.examples].map(async (address) => {
      const answer = await fetch(address);
      if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
      return answer.json();
    }));
    for (const [path, example] of Object.entries(examples)) {
      const body = spec.paths[path]?.post?.requestBody?.content?.["application/json"];
      if (body) body.example = example;
    }
    main.replaceChildren();
    window.SwaggerUIBundle({
      ...settings, url: undefined, spec, domNode: main, defaultModelsExpandDepth: 0, defaultModelExpandDepth: 2, persistAuthorization: false,
      presets: [window.SwaggerUIBundle.presets.apis, window.SwaggerUIBundle.SwaggerUIStandalonePreset],
    });
  } catch (error) {
    main.firstElementChild.textContent = `The description of the API could not be loaded (${error.message}). Reload the page to try again.`;
  }
})();
