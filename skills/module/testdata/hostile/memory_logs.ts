// timeout
export async function execute() { for (;;) console.log("x".repeat(1e4)); }
