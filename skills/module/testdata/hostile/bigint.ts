// timeout threw memory
export async function execute() { let n = 3n; for (;;) n = n * n; }
