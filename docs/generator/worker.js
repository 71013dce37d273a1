// Browsers start no worker from a file, and the theme searches in one. Where the site is opened from a
// folder, an invisible frame runs the worker's script instead: what it is sent and what it posts are events.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.scope = new Promise(resolve => {
        frame.addEventListener("load", () => {
          const scope = frame.contentWindow;
          scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
          const element = scope.document.createElement("script");
          element.src = new URL(address, location.href);
          element.addEventListener("load", () => resolve(scope));
          scope.document.body.append(element);
        }, { once: true });
        document.body.append(frame);
      });
    }
    postMessage(data) {
      this.scope.then(scope => scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
