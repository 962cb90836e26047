// timeout
export async function execute() { for (;;) await new Promise((done) => setTimeout(done, 1)); }
