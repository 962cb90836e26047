// timeout
export async function execute() { for (;;) {} }
