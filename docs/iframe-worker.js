/* A page that is opened from the disk may not start a worker: the search then runs in a hidden frame. */
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    frame.srcdoc = `<script>postMessage = (data) => parent.postMessage(data, "*");<\/script><script src="${url}"><\/script>`;
    this.frame = frame;
    this.loaded = new Promise((resolve) => frame.addEventListener("load", resolve));
    document.body.appendChild(frame);
    window.addEventListener("message", (event) => {
      if (event.source !== frame.contentWindow) return;
      const copy = new MessageEvent("message", { data: event.data });
      if (this.onmessage) this.onmessage(copy);
      this.dispatchEvent(copy);
    });
  }

  postMessage(data) {
    this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}
if (location.protocol === "file:") window.Worker = window.IFrameWorker = IFrameWorker;
