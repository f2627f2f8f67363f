def composite_table(): return {}
