// timeout
export async function execute() { for (;;) await null; }
