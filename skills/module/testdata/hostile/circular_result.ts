// threw: TypeError: circular reference
export async function execute() { const a: any = {}; a.a = a; return a; }
