-- What a saved view can be asked with: [{"name","type","default"}] (OSA-60).
alter table _views add column params text not null default '[]';
