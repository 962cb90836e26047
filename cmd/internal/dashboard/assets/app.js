// Keys, and the parts of a page that follow what happens. Every page works without.
"use strict";
(() => {
  const root = document.documentElement;

  // Live parts: a signal, then this page once more, of which what differs takes its place.
  let asking = false, again = false;
  const busy = (part) => part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
  async function refresh() {
    if (asking) { again = true; return; }
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (!answer.ok) return;
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const fresh = next.getElementById(part.id);
        // What somebody is typing in stays as it is until the next signal.
        if (!fresh || busy(part)) continue;
        // What was opened stays open, also for the comparison.
        for (const d of part.querySelectorAll("details[id][open]")) next.getElementById(d.id)?.setAttribute("open", "");
        for (const d of part.querySelectorAll("details[id]:not([open])")) next.getElementById(d.id)?.removeAttribute("open");
        if (fresh.innerHTML === part.innerHTML) continue;
        const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
        part.replaceChildren(...fresh.childNodes);
        if (focused) part.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      }
    } catch { /* the server is away; EventSource comes back by itself */ }
    finally {
      asking = false;
      if (again) { again = false; refresh(); }
    }
  }
  if (document.querySelector("[data-live]") && window.EventSource) {
    let source = null;
    const listen = () => {
      if (document.hidden) { source?.close(); source = null; return; }
      if (!source) { source = new EventSource("/live"); source.onmessage = refresh; }
    };
    document.addEventListener("visibilitychange", listen);
    window.addEventListener("pagehide", () => source?.close());
    listen();
  }

  // The theme is the system's until somebody chooses another.
  const theme = document.getElementById("theme");
  const chosen = localStorage.getItem("theme");
  if (chosen) root.dataset.theme = chosen;
  if (theme) {
    theme.hidden = false;
    theme.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
    });
  }

  // A link into something that is closed opens it.
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let d = target; d; d = d.parentElement) if (d.tagName === "DETAILS") d.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Keys.
  const pages = { t: "/", i: "/inbox", r: "/runs", j: "/jobs", a: "/agents", w: "/workspaces", h: "/health" };
  const help = document.getElementById("keys");
  let going = 0;
  const move = (by) => {
    const rows = [...document.querySelectorAll("[data-row] a[href]:first-of-type, a[data-row]")].filter((a) => a.offsetParent);
    if (rows.length) rows[Math.min(Math.max(rows.indexOf(document.activeElement) + by, 0), rows.length - 1)].focus();
  };
  const press = (key) => {
    const what = document.querySelector(`[data-key="${key}"]`);
    if (what?.tagName === "DETAILS") { what.open = true; what.querySelector("button, select, input")?.focus(); } else what?.focus();
  };
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, textarea, select")) return;
    if (Date.now() - going < 1000 && pages[e.key]) { location.href = pages[e.key]; return; }
    going = 0;
    switch (e.key) {
      case "g": going = Date.now(); return;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "r": case "p": press(e.key); break;
      case "/": press("/"); break;
      case "?": help?.showModal(); break;
      default: return;
    }
    e.preventDefault();
  });
})();
