"use strict";
(() => {
  const zoned = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const today = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

  // Moments come in UTC; people read them in their own zone.
  const localize = (root) => {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(element.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      element.title = element.dateTime;
      element.textContent = (moment.toDateString() === new Date().toDateString() ? today : zoned).format(moment);
    }
  };

  const marks = ["id", "href", "aria-labelledby", "aria-label"];
  const name = (node) => [node.nodeName, ...(node.attributes ? marks.map((mark) => node.getAttribute(mark)) : [])].join(" ");

  const alike = (node, fresh) => {
    for (const each of node.getAttributeNames()) if (!fresh.hasAttribute(each)) node.removeAttribute(each);
    for (const each of fresh.attributes) {
      if (node.getAttribute(each.name) !== each.value) node.setAttribute(each.name, each.value);
    }
  };

  // Changes what differs and nothing else: what stays keeps its focus, its scroll position and what is selected in it.
  const fill = (parent, fresh) => {
    let next = parent.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      let same = next;
      while (same && name(same) !== name(wanted)) same = wanted.nodeType === Node.ELEMENT_NODE ? same.nextSibling : null;
      if (!same) {
        parent.insertBefore(wanted, next);
        continue;
      }
      while (next !== same) {
        const gone = next;
        next = next.nextSibling;
        gone.remove();
      }
      next = same.nextSibling;
      if (same.isEqualNode(wanted)) continue;
      if (same.nodeType === Node.ELEMENT_NODE) {
        alike(same, wanted);
        fill(same, wanted);
      } else {
        same.data = wanted.data;
      }
    }
    while (next) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
  };

  // What is renewed under somebody's hands keeps its focus, also where a link has moved to another row.
  const renew = (target, fresh) => {
    const focused = target.contains(document.activeElement) ? document.activeElement : null;
    const href = focused && focused.getAttribute("href");
    localize(fresh);
    fill(target, fresh);
    if (href && !target.contains(document.activeElement)) {
      const same = [...target.querySelectorAll("a[href]")].find((each) => each.getAttribute("href") === href);
      if (same) same.focus({ preventScroll: true });
    }
  };

  const parsed = (html) => new DOMParser().parseFromString(html, "text/html");

  // Where the session has ended, this page leads to the login when it is loaded anew.
  const signInAgain = async () => {
    const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" }).catch(() => null);
    if (answer && (answer.type === "opaqueredirect" || answer.status === 401)) location.reload();
  };

  const watch = (target) => {
    const state = document.querySelector("[data-live-state]");
    const said = document.createElement("p");
    said.className = "unseen";
    said.setAttribute("role", "status");
    document.body.append(said);
    const show = (on) => {
      state.hidden = false;
      state.classList.toggle("on", on);
      state.querySelector(".label").textContent = on ? "live" : "not live";
    };
    let sentence = null;
    let source = null;
    let again = 0;
    let silence = 0;
    // The console says something every fifteen seconds. A connection that breaks without a word, as where somebody changes networks,
    // would stay open, and the page "live" with old numbers.
    const hear = () => {
      clearTimeout(silence);
      silence = setTimeout(() => {
        source.close();
        show(false);
        open();
      }, 45000);
    };
    const open = () => {
      source = new EventSource(target.dataset.events);
      hear();
      source.addEventListener("alive", hear);
      source.addEventListener("look", (event) => {
        hear();
        show(true);
        renew(target, parsed(JSON.parse(event.data)).body);
        const first = target.querySelector(".sentence, .fine");
        const text = first ? first.textContent.trim() : "";
        if (sentence !== null && text !== sentence) said.textContent = text;
        sentence = text;
        document.dispatchEvent(new Event("boxengine:look"));
      });
      source.addEventListener("error", () => {
        show(false);
        // The browser itself connects again after a broken connection, but not after an answer such as a proxy's 502.
        if (source.readyState !== EventSource.CLOSED) return;
        clearTimeout(silence);
        again = setTimeout(open, 3000);
        signInAgain();
      });
    };
    // A tab that nobody sees asks nothing of the server. Browsers keep six connections to a host: behind the streams of six tabs
    // that were opened in the background, no page would load.
    const follow = () => {
      clearTimeout(again);
      clearTimeout(silence);
      if (source) source.close();
      if (document.hidden) show(false); else open();
    };
    document.addEventListener("visibilitychange", follow);
    follow();
  };

  const two = (number) => String(number).padStart(2, "0");

  // A moment without a zone, as people type it, in their own; durations, and moments with a zone, stay as they are.
  const zonedMoment = (text) => {
    const found = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d(?::\d\d(?::\d\d(?:\.\d+)?)?)?))?$/.exec(text.trim());
    if (!found) return text;
    const time = found[2] === undefined ? "00:00" : found[2].includes(":") ? found[2] : `${found[2]}:00`;
    const moment = new Date(`${found[1]}T${time}`);
    if (Number.isNaN(moment.getTime())) return text;
    const east = -moment.getTimezoneOffset();
    const [hours, minutes] = [Math.trunc(Math.abs(east) / 60), Math.abs(east) % 60];
    return `${found[1]}T${time}${east < 0 ? "-" : "+"}${two(hours)}:${two(minutes)}`;
  };

  for (const form of document.querySelectorAll("form.search")) {
    form.querySelectorAll("[data-zone]").forEach((each) => { each.textContent = "in your zone"; });
    form.addEventListener("formdata", ({ formData }) => {
      for (const { name: field, value } of form.querySelectorAll("[data-moment]")) formData.set(field, zonedMoment(value));
    });
  }

  localize(document);
  document.querySelectorAll("[data-live]").forEach(watch);

  // Pages that htmx asks for again. A tab that nobody sees asks for none, and for one at once when it is shown.
  document.body.addEventListener("htmx:beforeRequest", (event) => { if (document.hidden) event.preventDefault(); });
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { target, xhr } = event.detail;
    event.detail.shouldSwap = false;
    if (xhr.status >= 500) return;
    const answer = parsed(xhr.responseText);
    const fresh = answer.getElementById(target.id);
    if (!fresh) {
      // The session has ended, or what the page shows is gone: loaded anew, it says so.
      location.reload();
      return;
    }
    document.title = answer.title;
    alike(target, fresh);
    renew(target, fresh);
    htmx.process(target);
  });
})();
