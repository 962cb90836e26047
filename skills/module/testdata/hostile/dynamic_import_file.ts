// threw: cannot be imported while a module runs
export async function execute() { const name = "/etc/passwd"; return await import(name); }
