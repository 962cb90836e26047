// threw: cannot be imported while a module runs
export async function execute() { const name = "std"; return await import(name); }
