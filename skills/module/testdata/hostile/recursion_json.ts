// threw: InternalError: stack overflow
export async function execute() { let deep: unknown = {}; for (let i = 0; i < 1e5; i++) deep = { deep }; return deep; }
