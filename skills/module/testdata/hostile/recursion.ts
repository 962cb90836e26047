// threw: InternalError: stack overflow
export async function execute() { const f = (): number => f() + 1; return f(); }
