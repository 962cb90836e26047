// timeout
export async function execute() { return { toJSON() { for (;;) {} } }; }
