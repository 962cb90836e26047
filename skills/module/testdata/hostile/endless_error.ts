// timeout
export async function execute() { throw Object.defineProperty(new Error(), "message", { get() { for (;;) {} } }); }
