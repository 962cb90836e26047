// timeout
for (;;) {}
export async function execute() {}
