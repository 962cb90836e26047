// memory
export async function execute() { let deep: unknown = {}; for (;;) deep = { deep }; }
