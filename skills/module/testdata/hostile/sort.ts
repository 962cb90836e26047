// timeout
export async function execute() { return Array.from({ length: 1e5 }, (_, i) => i).sort(() => { for (;;) {} }); }
