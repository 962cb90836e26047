// timeout
export async function execute() { return { then() { for (;;) {} } }; }
